//! The plan: a data shard per data core, and where the mesh and the store run.
//!
//! What is named is done; the rest follows from the number `N` of CPUs that can be busy at a time:
//!
//! - From four on, mesh and store each get a core of their own, the last ones, and the other `N` − 2 hold data shards.
//! - Below four, every CPU holds a data shard, and mesh and store are task queues in the first and the last of them: a
//!   second thread on a data shard's core doubles its worst latencies.
//! - A named mesh or store CPU gives the role an executor of its own at any `N`. Data shards stay off it unless no CPU
//!   would be left for them, or it is named for data too. Naming one CPU for two roles is allowed: whoever names both
//!   knows it, and tests on two cores need it. [`Roles::shared_cpus`] tells, for the boot log.

use super::{Available, CpuList};
use crate::ShardId;

/// Where a role runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On an executor of its own, pinned to this CPU.
    Own {
        /// The CPU.
        cpu: usize,
    },
    /// In a task queue of this data shard's executor.
    InData {
        /// The data shard.
        shard: ShardId,
    },
}

/// Which role runs where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The CPU of each data shard, by shard. At least one.
    pub data: Vec<usize>,
    /// Where the mesh runs.
    pub mesh: Home,
    /// Where the store runs.
    pub store: Home,
}

/// A setting that names CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The CPUs of the data shards.
    Data,
    /// The CPU of the mesh.
    Mesh,
    /// The CPU of the store.
    Store,
}

impl Setting {
    /// The setting's name in the environment.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "QUEEN_DATA_CPUS",
            Self::Mesh => "QUEEN_MESH_CPU",
            Self::Store => "QUEEN_STORE_CPU",
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A setting names a CPU that the process may not use.
    #[error("{}: CPU {cpu} of {value:?} is not available; this process may use {available}", setting.name())]
    NotAvailable {
        /// The setting.
        setting: Setting,
        /// Its value.
        value: String,
        /// The CPU that is not available.
        cpu: usize,
        /// Those that are.
        available: CpuList,
    },
    /// There would be more data shards than [`ShardId`] counts.
    #[error("{}: {count} data shards are more than {max}", Setting::Data.name())]
    TooMany {
        /// How many there would be.
        count: usize,
        /// How many there may be.
        max: usize,
    },
}

/// From this many CPUs on, mesh and store have executors of their own.
const OWN_EXECUTORS_FROM: usize = 4;

/// Data shards that a mesh with room for the other roles counts.
const DATA_SHARDS_MAX: usize = ShardId::MAX as usize - 2;

impl Roles {
    /// Plans, with the values of `QUEEN_DATA_CPUS`, `QUEEN_MESH_CPU` and `QUEEN_STORE_CPU` where they are set.
    ///
    /// A CPU quota limits the data shards that are not named. Named CPUs are taken as they are.
    ///
    /// # Errors
    ///
    /// [`PlacementError`], the first that is found.
    pub fn plan(
        available: &Available,
        data: Option<&CpuList>,
        mesh: Option<usize>,
        store: Option<usize>,
    ) -> Result<Self, PlacementError> {
        check(available, Setting::Data, data.into_iter().flat_map(CpuList::iter), data)?;
        check(available, Setting::Mesh, mesh, mesh.as_ref())?;
        check(available, Setting::Store, store, store.as_ref())?;

        let named = |cpu: usize| mesh == Some(cpu) || store == Some(cpu) || data.is_some_and(|data| data.contains(cpu));
        // What the roles that are not named may take, within what can be busy at a time beside the named ones.
        let budget = available.parallelism().saturating_sub(available.cpus.iter().filter(|&cpu| named(cpu)).count());
        let mut free: Vec<usize> = available.cpus.iter().filter(|&cpu| !named(cpu)).take(budget).collect();

        let own_executors = available.parallelism() >= OWN_EXECUTORS_FROM;
        let unnamed_roles = usize::from(mesh.is_none()) + usize::from(store.is_none());
        // Data shards come first: an unnamed role gets a core only if one is left for them.
        let spare = own_executors && free.len() >= unnamed_roles + usize::from(data.is_none());
        let store_cpu = store.or_else(|| if spare { free.pop() } else { None });
        let mesh_cpu = mesh.or_else(|| if spare { free.pop() } else { None });

        let data: Vec<usize> = match data {
            Some(data) => data.iter().collect(),
            None if free.is_empty() => available.cpus.iter().take(1).collect(),
            None => free,
        };
        if data.len() > DATA_SHARDS_MAX {
            return Err(PlacementError::TooMany { count: data.len(), max: DATA_SHARDS_MAX });
        }
        let last = ShardId::try_from(data.len() - 1).expect("bounded above");
        Ok(Self {
            data,
            mesh: mesh_cpu.map_or(Home::InData { shard: 0 }, |cpu| Home::Own { cpu }),
            store: store_cpu.map_or(Home::InData { shard: last }, |cpu| Home::Own { cpu }),
        })
    }

    /// CPUs that more than one executor is pinned to, ascending. Worth a warning: both are slower.
    #[must_use]
    pub fn shared_cpus(&self) -> Vec<usize> {
        let own = [self.mesh, self.store].into_iter().filter_map(|home| match home {
            Home::Own { cpu } => Some(cpu),
            Home::InData { .. } => None,
        });
        let mut cpus: Vec<usize> = self.data.iter().copied().chain(own).collect();
        cpus.sort_unstable();
        let mut shared: Vec<usize> = cpus.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        shared.dedup();
        shared
    }
}

/// Checks that the named CPUs may be used.
fn check(
    available: &Available,
    setting: Setting,
    cpus: impl IntoIterator<Item = usize>,
    value: Option<&impl ToString>,
) -> Result<(), PlacementError> {
    match cpus.into_iter().find(|&cpu| !available.cpus.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => Err(PlacementError::NotAvailable {
            setting,
            value: value.map(ToString::to_string).unwrap_or_default(),
            cpu,
            available: available.cpus.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(cpus: &str, quota: Option<usize>) -> Available {
        Available { cpus: CpuList::parse(cpus).unwrap(), quota }
    }

    fn plan(cpus: &str, data: Option<&str>, mesh: Option<usize>, store: Option<usize>) -> Roles {
        let data = data.map(|data| CpuList::parse(data).unwrap());
        Roles::plan(&available(cpus, None), data.as_ref(), mesh, store).unwrap()
    }

    fn own(cpu: usize) -> Home {
        Home::Own { cpu }
    }

    fn in_data(shard: ShardId) -> Home {
        Home::InData { shard }
    }

    fn roles(data: &[usize], mesh: Home, store: Home) -> Roles {
        Roles { data: data.to_vec(), mesh, store }
    }

    #[test]
    fn below_four_every_cpu_holds_a_data_shard_and_the_roles_are_in_them() {
        assert_eq!(plan("5", None, None, None), roles(&[5], in_data(0), in_data(0)));
        assert_eq!(plan("0-1", None, None, None), roles(&[0, 1], in_data(0), in_data(1)));
        assert_eq!(plan("0-2", None, None, None), roles(&[0, 1, 2], in_data(0), in_data(2)));
    }

    #[test]
    fn from_four_on_mesh_and_store_have_a_core_each() {
        assert_eq!(plan("0-3", None, None, None), roles(&[0, 1], own(2), own(3)));
        assert_eq!(plan("2-9", None, None, None), roles(&[2, 3, 4, 5, 6, 7], own(8), own(9)));
    }

    #[test]
    fn a_quota_limits_what_is_not_named() {
        let plan = |quota| Roles::plan(&available("0-7", Some(quota)), None, None, None).unwrap();
        assert_eq!(plan(1), roles(&[0], in_data(0), in_data(0)));
        assert_eq!(plan(3), roles(&[0, 1, 2], in_data(0), in_data(2)));
        assert_eq!(plan(5), roles(&[0, 1, 2], own(3), own(4)));
        assert_eq!(plan(64), roles(&[0, 1, 2, 3, 4, 5], own(6), own(7)));

        let data = CpuList::parse("0-5").unwrap();
        let named = Roles::plan(&available("0-7", Some(2)), Some(&data), None, None).unwrap();
        assert_eq!(named, roles(&[0, 1, 2, 3, 4, 5], in_data(0), in_data(5)));
    }

    #[test]
    fn a_named_role_has_its_own_executor_at_any_count() {
        assert_eq!(plan("0-1", None, Some(1), None), roles(&[0], own(1), in_data(0)));
        assert_eq!(plan("0-2", None, Some(1), Some(2)), roles(&[0], own(1), own(2)));
        assert_eq!(plan("0-3", None, Some(0), None), roles(&[1, 2], own(0), own(3)));
    }

    #[test]
    fn named_roles_may_share_a_cpu_and_that_is_told() {
        let two = plan("0-1", Some("0-1"), Some(0), Some(1));
        assert_eq!(two, roles(&[0, 1], own(0), own(1)));
        assert_eq!(two.shared_cpus(), [0, 1]);
        let one = plan("0", None, Some(0), Some(0));
        assert_eq!(one, roles(&[0], own(0), own(0)));
        assert_eq!(one.shared_cpus(), [0]);
        assert!(plan("0-3", None, None, None).shared_cpus().is_empty());
    }

    #[test]
    fn named_data_leaves_the_other_roles_what_is_free() {
        assert_eq!(plan("0-3", Some("0-1"), None, None), roles(&[0, 1], own(2), own(3)));
        assert_eq!(plan("0-3", Some("0-3"), None, None), roles(&[0, 1, 2, 3], in_data(0), in_data(3)));
        assert_eq!(plan("0-3", Some("0-2"), None, None), roles(&[0, 1, 2], in_data(0), in_data(2)));
        assert_eq!(plan("0-3", Some("0-2"), Some(3), None), roles(&[0, 1, 2], own(3), in_data(2)));
    }

    #[test]
    fn a_cpu_that_is_not_available_is_named_with_its_setting() {
        let data = CpuList::parse("1-4").unwrap();
        let error = Roles::plan(&available("0-3", None), Some(&data), None, None).unwrap_err();
        assert_eq!(error.to_string(), "QUEEN_DATA_CPUS: CPU 4 of \"1-4\" is not available; this process may use 0-3");
        let error = Roles::plan(&available("0-3", None), None, None, Some(9)).unwrap_err();
        assert_eq!(error.to_string(), "QUEEN_STORE_CPU: CPU 9 of \"9\" is not available; this process may use 0-3");
        let error = Roles::plan(&available("0-3", None), None, Some(7), None).unwrap_err();
        assert!(matches!(error, PlacementError::NotAvailable { setting: Setting::Mesh, cpu: 7, .. }));
    }
}
