//! What operators have switched and granted.
//!
//! One statement a job, since jobs share their connection: the change, and beside it all rows as they were before.
//! Those and the change are all rows after it.

use queen_fabric::protocol::{Control, ControlAsk, Grant, Switch};
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

/// Whether something was `written`, then the switches by name, then the grants by tenant.
macro_rules! all_beside {
    ($written:literal) => {
        concat!(
            "WITH written AS (",
            $written,
            ") SELECT NULL::uuid, EXISTS (SELECT FROM written), NULL::int8, NULL::int8, NULL::int8, NULL::text
            UNION ALL
            SELECT NULL, enabled, NULL, NULL, NULL, name FROM queen.switch
            UNION ALL
            SELECT tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec, NULL FROM queen.ephemeral_quota"
        )
    };
}

const LOAD: Sql = Sql { text: all_beside!("SELECT WHERE false"), types: &[] };
/// Where there is no row it is at its default: putting it there changes nothing then.
const SET: Sql = Sql {
    text: all_beside!(
        "INSERT INTO queen.switch AS s (name, enabled) SELECT $1, $2
         WHERE $2 <> $3 OR EXISTS (SELECT FROM queen.switch WHERE name = $1)
         ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled WHERE s.enabled <> excluded.enabled RETURNING 1"
    ),
    types: &[Type::TEXT, Type::BOOL, Type::BOOL],
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
        ControlAsk::Set(switch, on) => {
            let parameters: [&(dyn ToSql + Sync); 3] = [&switch.name(), on, &switch.default_on()];
            (control, changed) = read(&session.query(&SET, &parameters).await?)?;
            control.set(*switch, *on);
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
        match (get::<Option<Id>>(row, 0)?, get::<Option<String>>(row, 5)?) {
            (None, None) => changed = enabled,
            // One that is not known is a newer broker's.
            (None, Some(name)) => Switch::of_name(&name).into_iter().for_each(|switch| control.set(switch, enabled)),
            (Some(Id(tenant)), _) => {
                let most = |at| get(row, at).map(limit::of_stored);
                let grant = Grant { enabled, max_bytes: most(2)?, max_queues: most(3)?, max_msgs_per_sec: most(4)? };
                control.grants.insert(tenant.0, grant);
            }
        }
    }
    Ok((control, changed))
}
