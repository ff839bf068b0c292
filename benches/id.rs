//! Names that the broker mints, and reads back: of messages, from acks; of one-time inboxes, from the pushes of replies.
//!
//! `cargo bench --bench id`. Of messages, a first delivery, as nearly all are, and a later one far into a boot.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use queen_ephemeral::{InboxId, MessageId, inbox::Minted};

const FIRST: MessageId<'_> =
    MessageId { epoch: 0x624f_5af8_2b58_223f, partition: "Default", sequence: 123_456, attempts: 1 };
const LATER: MessageId<'_> =
    MessageId { epoch: 0x624f_5af8_2b58_223f, partition: "room:17.4", sequence: 9_876_543_210, attempts: 3 };
const INBOX: Minted = Minted { epoch: 0x624f_5af8_2b58_223f, shard: 1, inbox: InboxId { index: 63, serial: 123_456 } };
const IDS: [(&str, MessageId<'_>); 2] = [("first delivery", FIRST), ("later delivery", LATER)];

fn mint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mint an id");
    group.throughput(Throughput::Elements(1));
    for (name, id) in IDS {
        group.bench_function(name, |bencher| {
            let mut out = Vec::with_capacity(128);
            bencher.iter(|| {
                out.clear();
                black_box(id).append_to(&mut out);
                black_box(&out).len()
            });
        });
    }
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse an id");
    group.throughput(Throughput::Elements(1));
    for (name, id) in IDS {
        let text = id.to_string();
        assert_eq!(MessageId::parse(&text), Some(id));
        group.bench_function(name, |bencher| bencher.iter(|| MessageId::parse(black_box(&text)).is_some()));
    }
    // What an ack of somebody else's id costs.
    group.bench_function("no id", |bencher| {
        bencher.iter(|| MessageId::parse(black_box("e:624f5af82b58223f:Default:0123456")).is_none());
    });
    group.finish();
}

fn inboxes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("an inbox's name");
    group.throughput(Throughput::Elements(1));
    group.bench_function("mint", |bencher| {
        let mut out = Vec::with_capacity(128);
        bencher.iter(|| {
            out.clear();
            black_box(INBOX).append_to(&mut out);
            black_box(&out).len()
        });
    });
    let name = INBOX.to_string();
    assert_eq!(Minted::parse(&name), Some(INBOX));
    group.bench_function("parse", |bencher| bencher.iter(|| Minted::parse(black_box(&name)).is_some()));
    group.bench_function("no name of ours", |bencher| {
        bencher.iter(|| Minted::parse(black_box("_inbox.chosen-by-the-requester.17")).is_none());
    });
    group.finish();
}

criterion_group!(benches, mint, parse, inboxes);
criterion_main!(benches);
