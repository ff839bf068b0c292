//! What is about the caller and about all tenants: `/auth/me`, the switch of ephemeral queues, tenants' grants.

use std::rc::Rc;

use queen_ephemeral::TenantId;
use queen_fabric::{
    protocol::{
        control::{Control, ControlAsk, Grant},
        store::{StoreAnswer, StoreAsk},
    },
    rt,
};
use queen_log::id::Uuid;
use queen_wire::{
    body::{parse_grant, parse_switch},
    response::append_json_string,
    target,
};

use crate::{
    connection::{Operation, Out},
    dispatch::{Call, Handled},
    error::{ApiError, Code},
    reply::{Reply, promise},
    routes::Route,
    shard::Shard,
};

/// What clients that manage several clusters ask of a broker without tokens: there is one, called local.
const STANDALONE: &str = r#"{"user_id":"standalone","role":"admin","standalone":true,"email":null,"tenant_slug":"local","cluster":null,"acting_cluster":{"id":"local","slug":"local"},"act_cluster_header":"x-queen-act-cluster","clusters":[{"id":"local","slug":"local","cell_slug":"queen","role":"admin","status":"active","tenant_id":"00000000-0000-0000-0000-000000000001","tenant_slug":"local"}],"is_operator":true,"operator_enabled":true,"operator_live":true}"#;

impl Shard {
    /// Who the caller is: what its token says, or the one user of a broker without tokens.
    pub(crate) fn who_am_i(&self, call: &Call<'_>, out: &mut Out) -> Handled {
        out.with_body(&call.frame, 200, |body| {
            let Some(identity) = &call.identity else {
                return body.extend_from_slice(STANDALONE.as_bytes());
            };
            body.extend_from_slice(b"{\"user_id\":");
            match identity.subject.as_deref() {
                Some(subject) => append_json_string(body, subject),
                None => body.extend_from_slice(b"null"),
            }
            body.extend_from_slice(b",\"role\":");
            append_json_string(body, identity.role());
            body.extend_from_slice(b",\"tenant_id\":\"");
            body.extend_from_slice(&Uuid(call.tenant.0).text());
            body.extend_from_slice(b"\",\"standalone\":false}");
        });
        Handled::Done
    }

    /// Reads or sets whether ephemeral queues are served, by all brokers on the store.
    pub(crate) fn switch_ephemeral(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let ask = match call.frame.route {
            Route::SwitchEphemeral => {
                let enabled = parse_switch(call.request.body, self.node.config.json_depth_max)
                    .map_err(|error| ApiError::bad_request(&error))?;
                tracing::info!(enabled, by = call.subject(), "an operator switches ephemeral queues");
                ControlAsk::Set(Switch::Ephemeral, enabled)
            }
            _ => ControlAsk::Load,
        };
        self.ask_control(call, ask, |control, _| {
            Reply::json(200, format!("{{\"enabled\":{}}}", control.ephemeral_enabled).into_bytes())
        })
    }

    /// Lists all grants, by tenant.
    pub(crate) fn quotas(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        self.ask_control(call, ControlAsk::Load, |control, _| {
            let mut tenants: Vec<_> = control.grants.keys().copied().collect();
            tenants.sort_unstable();
            let rows: Vec<_> = tenants.iter().map(|&tenant| row(TenantId(tenant), &control.grants[&tenant])).collect();
            let text = format!("{{\"grants\":[{}],\"count\":{}}}", rows.join(","), rows.len());
            Reply::json(200, text.into_bytes())
        })
    }

    /// Reads, sets or removes the grant of the tenant that the path names.
    pub(crate) fn quota(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let tenant = call.granted_tenant()?;
        match call.frame.route {
            Route::PutQuota => {
                let body = parse_grant(call.request.body, self.node.config.json_depth_max)
                    .map_err(|error| ApiError::bad_request(&error))?;
                if tenant == TenantId::DEFAULT {
                    let message = "`tenant` is the default tenant: it needs no grant and has no limits but the node's";
                    return Err(ApiError::new(Code::BadRequest, message));
                }
                let grant = Grant {
                    enabled: body.enabled,
                    max_bytes: body.max_bytes,
                    max_queues: body.max_queues,
                    max_msgs_per_sec: body.max_msgs_per_sec,
                };
                let Grant { enabled, max_bytes, max_queues, max_msgs_per_sec } = grant;
                tracing::info!(
                    tenant = %Uuid(tenant.0), enabled, ?max_bytes, ?max_queues, ?max_msgs_per_sec, by = call.subject(),
                    "an operator grants ephemeral queues"
                );
                self.ask_control(call, ControlAsk::PutGrant(tenant.0, grant), move |control, _| {
                    granted(control, tenant)
                })
            }
            Route::DeleteQuota => {
                tracing::info!(tenant = %Uuid(tenant.0), by = call.subject(), "an operator takes a grant away");
                self.ask_control(call, ControlAsk::RemoveGrant(tenant.0), move |_, existed| {
                    let text = format!("{{\"tenant\":\"{}\",\"deleted\":{existed}}}", Uuid(tenant.0));
                    Reply::json(200, text.into_bytes())
                })
            }
            _ => self.ask_control(call, ControlAsk::Load, move |control, _| granted(control, tenant)),
        }
    }

    /// Asks the store; `render` gets what holds now, and whether the call changed it.
    fn ask_control(
        self: &Rc<Self>,
        call: &Call<'_>,
        ask: ControlAsk,
        render: impl FnOnce(&Control, bool) -> Reply + 'static,
    ) -> Result<Handled, ApiError> {
        let asked = self.store.ask(StoreAsk::Control(Box::new(ask)))?;
        let (promise, promised) = promise();
        rt::spawn_local(async move {
            promise.keep(match asked.await.answer {
                StoreAnswer::Control { control, changed, .. } => render(&control, changed),
                StoreAnswer::Unavailable(why) => {
                    let message = format!("The store is unavailable, nothing was changed: {why}");
                    ApiError::new(Code::StoreUnavailable, message).into()
                }
                other => unreachable!("asked for what is switched and granted, not for {other:?}"),
            });
        })
        .detach();
        Ok(call.later(Operation::Promised(promised)))
    }
}

impl Call<'_> {
    /// Who does it, for the log.
    fn subject(&self) -> Option<&str> {
        self.identity.as_ref().and_then(|identity| identity.subject.as_deref())
    }

    /// The tenant that the path names.
    fn granted_tenant(&self) -> Result<TenantId, ApiError> {
        let raw = self.segments[0].unwrap_or_default();
        target::decode_segment(raw).ok().and_then(|text| TenantId::parse(text.as_bytes())).ok_or_else(|| {
            ApiError::new(
                Code::BadTenant,
                "`tenant` in the path must be a UUID such as 11111111-1111-1111-1111-111111111111",
            )
        })
    }
}

/// A tenant's grant.
fn granted(control: &Control, tenant: TenantId) -> Reply {
    match control.grants.get(&tenant.0) {
        Some(grant) => Reply::json(200, row(tenant, grant).into_bytes()),
        None => {
            let message = format!("Tenant {} has no grant for ephemeral queues", Uuid(tenant.0));
            ApiError::new(Code::QuotaNotFound, message).into()
        }
    }
}

/// A grant as JSON; a limit that it does not have is null.
fn row(tenant: TenantId, grant: &Grant) -> String {
    let number = |limit: Option<u64>| limit.map_or_else(|| "null".to_owned(), |limit| limit.to_string());
    format!(
        "{{\"tenant\":\"{}\",\"enabled\":{},\"maxBytes\":{},\"maxQueues\":{},\"maxMsgsPerSec\":{}}}",
        Uuid(tenant.0),
        grant.enabled,
        number(grant.max_bytes),
        number(grant.max_queues),
        number(grant.max_msgs_per_sec),
    )
}
