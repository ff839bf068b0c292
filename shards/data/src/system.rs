//! What is about the caller and about all tenants: `/auth/me`, the switches of operators, tenants' grants.

use std::rc::Rc;

use queen_ephemeral::TenantId;
use queen_fabric::{
    port::Asked,
    protocol::{
        control::{Control, ControlAsk, Grant, Switch},
        store::{StoreAnswer, StoreAsk, StoreProtocol},
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
            Route::SwitchEphemeral => self.put_switch(call, Switch::Ephemeral)?,
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
        Ok(self.with_control(call, asked, render))
    }

    /// Answers with what `render` makes of the answer to a question about control.
    fn with_control(
        self: &Rc<Self>,
        call: &Call<'_>,
        asked: Asked<StoreProtocol>,
        render: impl FnOnce(&Control, bool) -> Reply + 'static,
    ) -> Handled {
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
        call.later(Operation::Promised(promised))
    }

    /// Reads or puts the switch that refuses durable pushes.
    pub(crate) fn maintenance(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        if call.frame.route == Route::Maintenance {
            let healthy = self.node.is_store_connected();
            let asked = self.store.control_now()?;
            return Ok(self.with_control(call, asked, move |control, _| {
                let text = format!(
                    "{{\"maintenanceMode\":{},\"popMaintenanceMode\":{},{},\"bufferStats\":{{\"pendingCount\":0,\
                     \"failedCount\":0,\"dbHealthy\":{healthy},\"failedFiles\":{{\"count\":0,\"totalBytes\":0,\"totalMB\":0,\
                     \"failoverCount\":0,\"qos0Count\":0}}}}}}",
                    control.push_maintenance, control.pop_maintenance, NO_SPOOL
                );
                Reply::json(200, text.into_bytes())
            }));
        }
        let ask = self.put_switch(call, Switch::PushMaintenance)?;
        self.ask_control(call, ask, |control, _| {
            let on = control.push_maintenance;
            let message = if on {
                "Push maintenance is on: durable pushes are answered 503 until it is off"
            } else {
                "Push maintenance is off: durable pushes are taken"
            };
            Reply::json(200, format!("{{\"maintenanceMode\":{on},{NO_SPOOL},\"message\":\"{message}\"}}").into_bytes())
        })
    }

    /// Reads or puts the switch that has durable pops get nothing.
    pub(crate) fn pop_maintenance(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let render = |control: &Control, _| {
            let on = control.pop_maintenance;
            let message = if on {
                "Pop maintenance is on: durable pops get nothing until it is off"
            } else {
                "Pop maintenance is off: durable pops get messages"
            };
            Reply::json(200, format!("{{\"popMaintenanceMode\":{on},\"message\":\"{message}\"}}").into_bytes())
        };
        if call.frame.route == Route::PopMaintenance {
            let asked = self.store.control_now()?;
            return Ok(self.with_control(call, asked, render));
        }
        let ask = self.put_switch(call, Switch::PopMaintenance)?;
        self.ask_control(call, ask, render)
    }

    /// What older brokers say of the state that they share. The mesh has a page of its own.
    pub(crate) fn shared_state(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let asked = self.store.control_now()?;
        Ok(self.with_control(call, asked, |control, _| {
            let text =
                format!("{{\"enabled\":false,\"reason\":\"single_node_segments_broker\",{}}}", switches_json(control));
            Reply::json(200, text.into_bytes())
        }))
    }

    /// The switch that a body asks for.
    fn put_switch(&self, call: &Call<'_>, switch: Switch) -> Result<ControlAsk, ApiError> {
        let on = parse_switch(call.request.body, self.node.config.json_depth_max)
            .map_err(|error| ApiError::bad_request(&error))?;
        tracing::info!(switch = switch.name(), on, by = call.subject(), "an operator puts a switch");
        Ok(ControlAsk::Set(switch, on))
    }
}

/// What is said of the spool, as long as there is none.
const NO_SPOOL: &str = "\"bufferedMessages\":0,\"bufferHealthy\":true";

/// The maintenance switches as members of an answer.
pub(crate) fn switches_json(control: &Control) -> String {
    format!("\"maintenance_mode\":{},\"pop_maintenance_mode\":{}", control.push_maintenance, control.pop_maintenance)
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
