//! What operators have switched and granted.
//!
//! One statement a job, since jobs share their connection: the change, and beside it all rows as they were before.
//! Those and the change are all rows after it.

use queen_fabric::protocol::{Control, ControlAsk, Grant};
use queen_log::id::Uuid;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    session::{Session, Sql, Trouble},
    values::{Id, get},
};
use crate::{database::JobDone, limit};

/// First the switch, with whether something was `written`, then the grants.
macro_rules! all_beside {
    ($written:literal) => {
        concat!(
            "WITH written AS (",
            $written,
            ") SELECT NULL::uuid, coalesce((SELECT enabled FROM queen.switch WHERE name = 'ephemeral'), true),
                NULL::int8, NULL::int8, NULL::int8, EXISTS (SELECT FROM written)
            UNION ALL
            SELECT tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec, false FROM queen.ephemeral_quota"
        )
    };
}

const LOAD: Sql = Sql { text: all_beside!("SELECT WHERE false"), types: &[] };
/// Where there is no row it is on: switching it on changes nothing then.
const SET_EPHEMERAL: Sql = Sql {
    text: all_beside!(
        "INSERT INTO queen.switch AS s (name, enabled) SELECT 'ephemeral', $1
         WHERE NOT $1 OR EXISTS (SELECT FROM queen.switch WHERE name = 'ephemeral')
         ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled WHERE s.enabled <> excluded.enabled RETURNING 1"
    ),
    types: &[Type::BOOL],
};
const PUT_GRANT: Sql = Sql {
    text: all_beside!(
        "INSERT INTO queen.ephemeral_quota AS q (tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (tenant_id) DO UPDATE SET enabled = excluded.enabled, max_bytes = excluded.max_bytes,
             max_queues = excluded.max_queues, max_msgs_per_sec = excluded.max_msgs_per_sec
         WHERE (q.enabled, q.max_bytes, q.max_queues, q.max_msgs_per_sec) IS DISTINCT FROM
             (excluded.enabled, excluded.max_bytes, excluded.max_queues, excluded.max_msgs_per_sec)
         RETURNING 1"
    ),
    types: &[Type::UUID, Type::BOOL, Type::INT8, Type::INT8, Type::INT8],
};
const REMOVE_GRANT: Sql = Sql {
    text: all_beside!("DELETE FROM queen.ephemeral_quota WHERE tenant_id = $1 RETURNING 1"),
    types: &[Type::UUID],
};

/// All of it.
pub(super) async fn load(session: &Session) -> Result<Control, Trouble> {
    Ok(read(&session.query(&LOAD, &[]).await?)?.0)
}

/// Does what is asked, and loads all of it.
pub(super) async fn control(session: &Session, ask: &ControlAsk) -> Result<JobDone, Trouble> {
    let (mut control, changed);
    match ask {
        ControlAsk::Load => (control, changed) = read(&session.query(&LOAD, &[]).await?)?,
        ControlAsk::SetEphemeral(enabled) => {
            (control, changed) = read(&session.query(&SET_EPHEMERAL, &[enabled]).await?)?;
            control.ephemeral_enabled = *enabled;
        }
        ControlAsk::PutGrant(tenant, grant) => {
            let [max_bytes, max_queues, max_msgs_per_sec] =
                [grant.max_bytes, grant.max_queues, grant.max_msgs_per_sec].map(|most| most.map(limit::to_stored));
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&Id(Uuid(*tenant)), &grant.enabled, &max_bytes, &max_queues, &max_msgs_per_sec];
            (control, changed) = read(&session.query(&PUT_GRANT, &parameters).await?)?;
            let stored = Grant {
                enabled: grant.enabled,
                max_bytes: limit::of_stored(max_bytes),
                max_queues: limit::of_stored(max_queues),
                max_msgs_per_sec: limit::of_stored(max_msgs_per_sec),
            };
            control.grants.insert(*tenant, stored);
        }
        ControlAsk::RemoveGrant(tenant) => {
            (control, changed) = read(&session.query(&REMOVE_GRANT, &[&Id(Uuid(*tenant))]).await?)?;
            control.grants.remove(tenant);
        }
    }
    Ok(JobDone::Control { control, changed })
}

/// All rows of [`all_beside`], and whether something was written.
fn read(rows: &[Row]) -> Result<(Control, bool), Trouble> {
    let (mut control, mut changed) = (Control::default(), false);
    for row in rows {
        let enabled = get(row, 1)?;
        match get::<Option<Id>>(row, 0)? {
            None => (control.ephemeral_enabled, changed) = (enabled, get(row, 5)?),
            Some(Id(tenant)) => {
                let most = |at| get(row, at).map(limit::of_stored);
                let grant = Grant { enabled, max_bytes: most(2)?, max_queues: most(3)?, max_msgs_per_sec: most(4)? };
                control.grants.insert(tenant.0, grant);
            }
        }
    }
    Ok((control, changed))
}
