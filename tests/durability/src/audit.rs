//! Reads the log from its beginning, as a group that has never been there.

use std::net::SocketAddr;

use crate::{
    Failed,
    history::{History, Log, Seen},
    load::QUEUE,
    produce::partition_name,
    wire::{Client, Pop},
};

/// Empty answers in a row that mean that there is nothing more: some brokers need a moment to see a message.
const EMPTY_MAX: u32 = 20;

/// The log of a broker that nobody disturbs any more.
pub fn read(address: SocketAddr, partitions: usize, history: &History) -> Result<Log, Failed> {
    let mut client = Client::new(address, QUEUE);
    let mut log = Log { partitions: vec![Vec::new(); partitions] };
    let pop = Pop { group: "audit", batch: 1_000, partitions, wait_ms: 100, lease_s: None };
    let mut empty = 0;
    while empty < EMPTY_MAX {
        let (_, messages) =
            client.pop(&pop).map_err(|trouble| Failed(format!("the log could not be read: {trouble:?}")))?;
        empty = if messages.is_empty() { empty + 1 } else { 0 };
        for popped in messages {
            let partition = (0..partitions).find(|&number| partition_name(number) == popped.partition);
            let partition =
                partition.ok_or_else(|| Failed(format!("the log has a partition {:?}", popped.partition)))?;
            let message = history.identify(&popped);
            log.partitions[partition].push(Seen { message, message_id: popped.message_id, offset: popped.offset });
        }
    }
    Ok(log)
}
