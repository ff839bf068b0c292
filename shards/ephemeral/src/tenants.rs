//! Tenants: what each holds, what it may hold, and which of its queues are idle.
//!
//! A tenant has a record while it has queues or a limit. The default tenant never has one: it is not counted, and only
//! the node limits it.

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::partition::List;
use crate::slab::{NONE, Slab};
use crate::types::{TenantId, TenantLimit, TenantUsage};

/// A tenant's record.
pub(crate) struct Tenant {
    id: TenantId,
    pub(crate) usage: TenantUsage,
    pub(crate) limit: Option<TenantLimit>,
    /// Its drained implicit queues that nobody waits on, longest idle first.
    pub(crate) idle: List,
}

/// The records. [`NONE`] stands for the default tenant.
pub(crate) struct Tenants {
    records: Slab<Tenant>,
    index: HashMap<TenantId, u32>,
}

impl Tenants {
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Self {
        Self { records: Slab::new(), index: HashMap::with_hasher(hasher) }
    }

    /// The record of a tenant, if it has one.
    pub(crate) fn find(&self, id: TenantId) -> Option<u32> {
        if id == TenantId::DEFAULT {
            return None;
        }
        self.index.get(&id).copied()
    }

    pub(crate) fn get(&self, tenant: u32) -> Option<&Tenant> {
        // The default tenant's queues ask most: they are spared the look.
        if tenant == NONE { None } else { self.records.get(tenant) }
    }

    pub(crate) fn get_mut(&mut self, tenant: u32) -> Option<&mut Tenant> {
        if tenant == NONE { None } else { self.records.get_mut(tenant) }
    }

    /// Whose record it is.
    pub(crate) fn id(&self, tenant: u32) -> TenantId {
        self.get(tenant).map_or(TenantId::DEFAULT, |record| record.id)
    }

    /// The record of a tenant, made if it has none; [`NONE`] for the default tenant.
    fn find_or_insert(&mut self, id: TenantId) -> u32 {
        if id == TenantId::DEFAULT {
            return NONE;
        }
        let records = &mut self.records;
        let usage = TenantUsage { bytes: 0, queues: 0 };
        *self.index.entry(id).or_insert_with(|| records.insert(Tenant { id, usage, limit: None, idle: List::EMPTY }))
    }

    /// Counts one more queue of a tenant; its record.
    pub(crate) fn add_queue(&mut self, id: TenantId) -> u32 {
        let tenant = self.find_or_insert(id);
        if let Some(record) = self.get_mut(tenant) {
            record.usage.queues += 1;
        }
        tenant
    }

    /// Counts one queue less.
    pub(crate) fn remove_queue(&mut self, tenant: u32) {
        if let Some(record) = self.get_mut(tenant) {
            record.usage.queues -= 1;
            self.let_go(tenant);
        }
    }

    /// Counts payload bytes that came.
    pub(crate) fn add_bytes(&mut self, tenant: u32, bytes: u64) {
        if let Some(record) = self.get_mut(tenant) {
            record.usage.bytes += bytes;
        }
    }

    /// Counts payload bytes that went.
    pub(crate) fn remove_bytes(&mut self, tenant: u32, bytes: u64) {
        if let Some(record) = self.get_mut(tenant) {
            record.usage.bytes -= bytes;
        }
    }

    /// Sets what a tenant may hold. The default tenant stays without a limit.
    pub(crate) fn set_limit(&mut self, id: TenantId, limit: Option<TenantLimit>) {
        let tenant = self.find_or_insert(id);
        if let Some(record) = self.get_mut(tenant) {
            record.limit = limit;
            self.let_go(tenant);
        }
    }

    /// Every record there is.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        (0..self.records.slots()).filter_map(|tenant| self.records.get(tenant)).map(|record| (record.id, record))
    }

    /// Forgets a tenant without queues and limit.
    fn let_go(&mut self, tenant: u32) {
        let record = &self.records[tenant];
        if record.usage.queues > 0 || record.limit.is_some() {
            return;
        }
        debug_assert!(record.usage.bytes == 0 && record.idle == List::EMPTY, "what it has is in its queues");
        self.index.remove(&record.id);
        self.records.remove(tenant);
    }
}
