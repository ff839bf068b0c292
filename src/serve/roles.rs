//! Which role runs where, in words: for the boot log and `/status`.

use queen_data::{Node, RoleLine};
use queen_fabric::placement::{Home, Roles};

/// One line per role, the data shards first, in the order of their ids.
pub(super) fn lines(roles: &Roles, shards: usize) -> Vec<RoleLine> {
    let data = roles.data.iter().enumerate().map(|(shard, &cpu)| RoleLine {
        role: "data",
        cpu: Some(cpu),
        owns: format!("slice {} of {shards} of the ephemeral queues, and the connections it accepts", shard + 1),
    });
    let mesh = role("mesh", roles, roles.mesh, "connections to the other brokers, of which there may be none");
    let store = role("store", roles, roles.store, "durable queues and declarations");
    data.chain([mesh, store]).collect()
}

fn role(name: &'static str, roles: &Roles, home: Home, owns: &str) -> RoleLine {
    match home {
        Home::Own { cpu } => RoleLine { role: name, cpu: Some(cpu), owns: owns.to_owned() },
        Home::InData { shard } => RoleLine {
            role: name,
            cpu: roles.data.get(usize::from(shard)).copied(),
            owns: format!("{owns}; a task queue of data shard {shard}"),
        },
    }
}

/// Says at boot what runs where.
pub(super) fn log(node: &Node, roles: &Roles) {
    for line in &node.roles {
        let cpu = line.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        tracing::info!("shard role={} cpu={cpu} owns {}", line.role, line.owns);
    }
    for cpu in roles.shared_cpus() {
        tracing::warn!("CPU {cpu} is named for more than one role: they will take time from each other");
    }
}
