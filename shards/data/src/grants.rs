//! What operators have switched and granted, as a shard applies it to ephemeral queues: whether they are served at all,
//! which tenants may use them, and how much.
//!
//! The store role keeps it and tells every shard when it changes. A tenant's bytes and queues span shards: each shard
//! draws on the tenant's pool in chunks, as it does on the node's, so a limit is never exceeded, and approximate in when
//! it is reached.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use crossbeam_skiplist::SkipMap;
use queen_ephemeral::{Engine, TenantId, TenantLimit};
use queen_fabric::{
    budget::Pool,
    protocol::control::{Control, Grant},
};

use crate::{
    budget::Share,
    error::{ApiError, Code},
    rate::RateLimit,
    shard::Shard,
};

/// The most bytes and queues of a tenant's grant that a shard takes at a time.
const BYTES_CHUNK_MAX: u64 = 256 * 1024;
const QUEUES_CHUNK_MAX: u64 = 16;

/// What the shards of a node hold of each tenant's grant, together.
#[derive(Debug, Default)]
pub(crate) struct TenantPools(SkipMap<TenantId, TenantPool>);

#[derive(Clone, Debug)]
struct TenantPool {
    bytes: Pool,
    queues: Pool,
}

impl TenantPools {
    /// The tenant's pool, at the size of its grant.
    fn sized(&self, tenant: TenantId, limit: TenantLimit) -> TenantPool {
        let fresh = || TenantPool { bytes: Pool::new(limit.bytes), queues: Pool::new(limit.queues) };
        let pool = self.0.get_or_insert_with(tenant, fresh).value().clone();
        pool.bytes.resize(limit.bytes);
        pool.queues.resize(limit.queues);
        pool
    }
}

/// What this shard holds of one tenant's grant.
struct Credit {
    pool: TenantPool,
    bytes: Share,
    queues: Share,
}

/// A shard's view of what was switched and granted.
pub(crate) struct Grants {
    /// 0 until the store was read for the first time.
    version: Cell<u64>,
    control: RefCell<Arc<Control>>,
    /// Of tenants whose grants have a limit.
    credits: RefCell<HashMap<TenantId, Credit>>,
}

impl Grants {
    pub(crate) fn new() -> Self {
        Self { version: Cell::new(0), control: RefCell::default(), credits: RefCell::default() }
    }

    /// Whether ephemeral queues are served.
    pub(crate) fn is_ephemeral_enabled(&self) -> bool {
        self.control.borrow().ephemeral_enabled
    }

    /// Whether durable pushes are refused.
    pub(crate) fn is_push_maintenance(&self) -> bool {
        self.control.borrow().push_maintenance
    }

    /// Whether durable pops get nothing.
    pub(crate) fn is_pop_maintenance(&self) -> bool {
        self.control.borrow().pop_maintenance
    }

    fn grant_of(&self, tenant: TenantId) -> Option<Grant> {
        self.control.borrow().grants.get(&tenant.0).copied()
    }
}

/// The limit in a grant, if it has one.
fn limit_of(grant: &Grant) -> Option<TenantLimit> {
    (grant.max_bytes.is_some() || grant.max_queues.is_some()).then(|| TenantLimit {
        bytes: grant.max_bytes.unwrap_or(u64::MAX),
        queues: grant.max_queues.unwrap_or(u64::MAX),
    })
}

impl Shard {
    /// Whether ephemeral queues may be used for a tenant now: the switch, then its grant, which an operator does not need
    /// to look after what is left there.
    pub(crate) fn check_ephemeral(&self, tenant: TenantId, is_operator: bool) -> Result<(), ApiError> {
        if !self.grants.is_ephemeral_enabled() {
            return Err(ApiError::ephemeral_disabled());
        }
        if is_operator { Ok(()) } else { self.check_grant(tenant) }
    }

    /// Whether a tenant's grant, or that there is none, lets it use ephemeral queues.
    fn check_grant(&self, tenant: TenantId) -> Result<(), ApiError> {
        self.check_grant_of(&self.grants.control.borrow(), tenant)
    }

    fn check_grant_of(&self, control: &Control, tenant: TenantId) -> Result<(), ApiError> {
        let refusal = match control.grants.get(&tenant.0) {
            _ if tenant == TenantId::DEFAULT => return Ok(()),
            Some(grant) if grant.enabled => return Ok(()),
            None if !self.node.config.ephemeral_require_grant => return Ok(()),
            None if self.grants.version.get() == 0 => {
                let message = "The tenant's grant could not be read yet; try again";
                return Err(ApiError::new(Code::EphemeralUnavailable, message));
            }
            Some(_) => "The tenant's grant for ephemeral queues is switched off: ask an operator",
            None => "The tenant has no grant for ephemeral queues: ask an operator for one",
        };
        Err(ApiError::new(Code::FeatureGated, refusal))
    }

    /// The rate at which a tenant may push: its grant's, or else every tenant's. In messages a second for the message to
    /// who exceeds it, and ready to count with.
    pub(crate) fn rate_of(&self, tenant: TenantId) -> (u64, RateLimit) {
        let config = &self.node.config;
        let granted = if tenant == TenantId::DEFAULT { None } else { self.grants.grant_of(tenant) };
        match granted.and_then(|grant| grant.max_msgs_per_sec) {
            Some(rate) => (rate, RateLimit::new(rate, rate.saturating_mul(2))),
            None => (config.ephemeral_rate, RateLimit::new(config.ephemeral_rate, config.ephemeral_burst)),
        }
    }

    /// Draws on a tenant's grant so that it may hold `bytes` and one queue more, if the grant has them.
    pub(crate) fn draw_on_grant(&self, engine: &mut Engine, tenant: TenantId, bytes: u64) {
        if let Some(credit) = self.grants.credits.borrow().get(&tenant) {
            let usage = engine.tenant_usage(tenant);
            let pool = &credit.pool;
            let limit = TenantLimit {
                bytes: pool.bytes.usable(credit.bytes.cover(&pool.bytes, usage.bytes.saturating_add(bytes))),
                queues: pool.queues.usable(credit.queues.cover(&pool.queues, usage.queues + 1)),
            };
            engine.set_tenant_limit(tenant, Some(limit));
        }
    }

    /// Gives back what tenants do not need at the moment.
    pub(crate) fn return_grants(&self, engine: &mut Engine) {
        for (tenant, credit) in &*self.grants.credits.borrow() {
            let usage = engine.tenant_usage(*tenant);
            let pool = &credit.pool;
            let limit = TenantLimit {
                bytes: pool.bytes.usable(credit.bytes.trim(&pool.bytes, usage.bytes)),
                queues: pool.queues.usable(credit.queues.trim(&pool.queues, usage.queues)),
            };
            engine.set_tenant_limit(*tenant, Some(limit));
        }
    }

    /// Applies what was switched and granted, as the store has it now.
    fn apply_control(&self, control: Arc<Control>, version: u64) {
        let was_enabled = self.grants.is_ephemeral_enabled();
        self.grants.version.set(version);
        let before = self.grants.control.replace(Arc::clone(&control));
        if before.grants != control.grants {
            self.forget_rates(&before, &control);
            self.resize_grants(&before, &control);
            self.release_gated(&before, &control);
        }
        self.clock.run_engine_time(control.ephemeral_enabled, Instant::now());
        self.timers.look_again();
        if was_enabled && !control.ephemeral_enabled {
            if self.id() == 0 {
                tracing::warn!("ephemeral queues are switched off, here and on every broker of the store");
            }
            self.outlet.refuse_those_released(Some(ApiError::ephemeral_disabled()));
            self.engine.borrow_mut().release_waiters(&mut &self.outlet);
            self.outlet.refuse_those_released(None);
        }
        if !was_enabled && control.ephemeral_enabled && self.id() == 0 {
            tracing::info!("ephemeral queues are switched on again");
        }
    }

    /// What was pushed at another rate is not owed at this one.
    fn forget_rates(&self, before: &Control, control: &Control) {
        let rate = |control: &Control, tenant| control.grants.get(tenant).and_then(|grant| grant.max_msgs_per_sec);
        for tenant in before.grants.keys().chain(control.grants.keys()) {
            if rate(before, tenant) != rate(control, tenant) {
                self.node.rates.forget(TenantId(*tenant));
            }
        }
    }

    /// Tells those who wait for a tenant that may use ephemeral queues no more.
    fn release_gated(&self, before: &Control, control: &Control) {
        for tenant in before.grants.keys().chain(control.grants.keys()).map(|tenant| TenantId(*tenant)) {
            if self.check_grant_of(before, tenant).is_ok()
                && let Err(refusal) = self.check_grant_of(control, tenant)
            {
                self.outlet.refuse_those_released(Some(refusal));
                self.engine.borrow_mut().release_waiters_of(tenant, &mut &self.outlet);
            }
        }
        self.outlet.refuse_those_released(None);
    }

    /// Fits pools, credits and the engine's limits to the grants.
    fn resize_grants(&self, before: &Control, control: &Control) {
        let mut engine = self.engine.borrow_mut();
        let mut credits = self.grants.credits.borrow_mut();
        credits.retain(|tenant, credit| {
            let kept = control.grants.get(&tenant.0).is_some_and(|grant| limit_of(grant).is_some());
            if !kept {
                engine.set_tenant_limit(*tenant, None);
                credit.bytes.release(&credit.pool.bytes);
                credit.queues.release(&credit.pool.queues);
            }
            kept
        });
        let shards = self.peers.shards();
        for (&tenant, grant) in &control.grants {
            let is_new = before.grants.get(&tenant) != Some(grant);
            let (tenant, Some(limit)) = (TenantId(tenant), limit_of(grant)) else { continue };
            if tenant == TenantId::DEFAULT || !is_new {
                continue;
            }
            let pool = self.node.tenants.sized(tenant, limit);
            let (held_bytes, held_queues) = match credits.remove(&tenant) {
                Some(credit) => (credit.bytes, credit.queues),
                None => (Share::default(), Share::default()),
            };
            let usage = engine.tenant_usage(tenant);
            let credit = Credit {
                bytes: held_bytes.resized(limit.bytes, shards, BYTES_CHUNK_MAX),
                queues: held_queues.resized(limit.queues, shards, QUEUES_CHUNK_MAX),
                pool,
            };
            // What is there already counts from now on.
            credit.bytes.cover(&credit.pool.bytes, usage.bytes);
            credit.queues.cover(&credit.pool.queues, usage.queues);
            credits.insert(tenant, credit);
        }
        drop(credits);
        // What a shard may use of what it holds is the engine's limit, from the start.
        self.return_grants(&mut engine);
    }

    /// Takes in what was switched and granted, if the store role knows it by now.
    pub(crate) async fn learn_control(&self) {
        let (control, version) = self.store.control_after(self.grants.version.get()).await;
        self.apply_control(control, version);
    }

    /// Follows what is switched and granted, for as long as the shard runs.
    pub(crate) async fn follow_control(self: Rc<Self>) {
        loop {
            self.learn_control().await;
        }
    }
}
