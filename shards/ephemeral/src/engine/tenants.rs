//! What tenants may hold: set by the shard, kept by pushes, pops and declarations.

use super::Engine;
use crate::slab::NONE;
use crate::types::{TenantId, TenantLimit, TenantUsage};

impl Engine {
    /// Sets what a tenant may hold here; `None`, which is how it starts, is no limit. A limit below what it holds takes
    /// nothing away: pushes, and what would create queues, are refused until it holds less. The default tenant is not
    /// counted, and nothing but the node limits it: a limit for it is not taken.
    pub fn set_tenant_limit(&mut self, tenant: TenantId, limit: Option<TenantLimit>) {
        self.tenants.set_limit(tenant, limit);
    }

    /// What a tenant holds here; nothing for the default tenant.
    pub fn tenant_usage(&self, tenant: TenantId) -> TenantUsage {
        let record = self.tenants.find(tenant).and_then(|tenant| self.tenants.get(tenant));
        record.map_or(TenantUsage { bytes: 0, queues: 0 }, |record| record.usage)
    }

    /// The tenants that have a limit, in no particular order, and what they hold. Costs a look at every tenant.
    pub fn limited_tenants(&self) -> impl Iterator<Item = (TenantId, TenantUsage)> {
        let limited = self.tenants.iter().filter(|(_, record)| record.limit.is_some());
        limited.map(|(tenant, record)| (tenant, record.usage))
    }

    /// Collects the tenant's own idle queues, longest idle first, until it may have one more. Returns whether it may.
    pub(super) fn make_tenant_room(&mut self, tenant: TenantId) -> bool {
        let Some(tenant) = self.tenants.find(tenant) else { return true };
        while let Some(record) = self.tenants.get(tenant)
            && let Some(limit) = record.limit
            && record.usage.queues >= limit.queues
        {
            let idle = record.idle.head;
            if idle == NONE {
                return false;
            }
            self.remove_queue(idle);
        }
        true
    }

    /// How many payload bytes more than it may the owner of a queue, or a tenant that would get one, would hold with
    /// `more`.
    pub(super) fn bytes_over(&self, tenant: TenantId, queue: Option<u32>, more: u64) -> u64 {
        let tenant = queue.map_or_else(|| self.tenants.find(tenant), |queue| Some(self.queues[queue].tenant));
        let Some(record) = tenant.and_then(|tenant| self.tenants.get(tenant)) else { return 0 };
        record.limit.map_or(0, |limit| (record.usage.bytes + more).saturating_sub(limit.bytes))
    }
}
