//! One of everything that a frame can say.

use queen_wire::peer::{
    Ack, AckStatus, Answer, Ask, Chunk, Declaration, DeclarationState, DepthShare, Frame, Offer, Pop, Push, QueueKey,
    QueueLimits, QueueShare, Refusal, Request, RequestReply,
};

pub fn text(text: &str) -> String {
    text.to_owned()
}

pub fn request(ask: Ask) -> Request {
    Request { tenant: [7; 16], access: 3, ask }
}

pub fn push(payload: &[u8]) -> Request {
    request(Ask::Push(Push {
        queue: text("q"),
        partition: text("p"),
        bytes: payload.to_vec(),
        ends: vec![payload.len() as u32],
        reply_to: None,
    }))
}

pub fn pop(wait_ms: u64) -> Request {
    let (queue, partition, group) = (text("q"), None, Some(text("g")));
    request(Ask::Pop(Pop { queue, partition, group, batch: 10, auto_ack: false, wait_ms }))
}

pub fn declaration(queue: &str, state: DeclarationState) -> Declaration {
    let key = QueueKey { tenant: [9; 16], queue: text(queue) };
    Declaration { key, updated_at_ms: 1_764_478_000_000, origin: text("node-1"), state }
}

pub fn asks() -> Vec<Ask> {
    let declared = DeclarationState::Declared(text(r#"{"maxLength":5}"#));
    vec![
        Ask::Push(Push {
            queue: text("presence"),
            partition: text("room-7"),
            bytes: b"{}[1]\"\"".to_vec(),
            ends: vec![2, 5, 5, 7],
            reply_to: Some(text("_inbox.1.2.3.4")),
        }),
        Ask::Push(Push { queue: text("é"), partition: text(""), bytes: Vec::new(), ends: Vec::new(), reply_to: None }),
        pop(30_000).ask,
        Ask::Pop(Pop {
            queue: text("q"),
            partition: Some(text("p")),
            group: None,
            batch: u32::MAX,
            auto_ack: true,
            wait_ms: 0,
        }),
        Ask::Request(RequestReply {
            queue: text("rpc"),
            partition: text("p"),
            payload: b"{\"n\":1}".to_vec(),
            reply_to: text("_inbox.1.2.3.4"),
            wait_ms: 5_000,
        }),
        Ask::Ack(Ack {
            queue: text("q"),
            group: Some(text("g")),
            acks: vec![(text("e:1:p:7"), AckStatus::Completed), (text("e:1:p:8"), AckStatus::Retry)],
        }),
        Ask::Reset { queue: text("q") },
        Ask::Delete { queue: text("q") },
        Ask::Configure { queue: text("q"), options_json: text("{}"), updated_at_ms: u64::MAX },
        Ask::Depth { queue: text("q"), group: None },
        Ask::Depth { queue: text("q"), group: Some(text("g")) },
        Ask::Declare(declaration("q", declared)),
        Ask::Declare(declaration("q", DeclarationState::Deleted)),
        Ask::Declarations { after: None },
        Ask::Declarations { after: Some(QueueKey { tenant: [1; 16], queue: text("q") }) },
        Ask::Offer(Offer { transfer: 1, queue: text("q"), partition: text("p"), messages: 5, payload_bytes: 500 }),
        Ask::Chunk(Chunk {
            transfer: u64::MAX,
            index: 3,
            last: true,
            queue: text("q"),
            partition: text("p"),
            bytes: vec![0xff; 40],
        }),
        Ask::Inquire { queue: text("q"), partition: text("p") },
        Ask::Queues { after: None, limit: 1_000 },
        Ask::Queues { after: Some(text("q")), limit: 1 },
    ]
}

pub fn answers() -> Vec<Answer> {
    vec![
        Answer::Pushed(3),
        Answer::Popped { body: br#"{"queue":"q","messages":[]}"#.to_vec(), has_claim: false },
        Answer::Popped { body: br#"{"queue":"q","messages":[1]}"#.to_vec(), has_claim: true },
        Answer::Reply { status: 404, body: b"{}".to_vec() },
        Answer::Refused(Refusal { code: text("queue_full"), message: text("Queue \"q\""), retry_after_s: None }),
        Answer::Refused(Refusal { code: text("overloaded"), message: text(""), retry_after_s: Some(1) }),
        Answer::Moved { owner: text("node-2") },
        Answer::Cancelled,
        Answer::Dropped { existed: true, messages: 12 },
        Answer::Declared { applied: false },
        Answer::Declarations { declarations: Vec::new(), more: false },
        Answer::Declarations {
            declarations: vec![
                declaration("a", DeclarationState::Deleted),
                declaration("b", DeclarationState::Declared(text("{}"))),
            ],
            more: true,
        },
        Answer::Adopted,
        Answer::Empty,
        Answer::Coming,
        Answer::Depth(None),
        Answer::Depth(Some(DepthShare {
            is_declared: true,
            pending: 3,
            partitions_pending: 1,
            bytes: 30,
            partitions: vec![(text("p"), 3, 30)],
            groups: vec![(text("g"), 2, 1), (text("h"), 3, 0)],
        })),
        Answer::Queues { bytes: 7, queues: vec![queue_share(None), queue_share(Some(5_000))], more: true },
    ]
}

fn queue_share(ttl_ms: Option<u64>) -> QueueShare {
    let limits = QueueLimits {
        max_bytes: 1 << 24,
        max_length: 10_000,
        drops_oldest: true,
        ttl_ms,
        lease_ms: 30_000,
        retry_limit: 5,
        window_ms: 20,
        window_count: 3,
    };
    QueueShare {
        queue: text("q"),
        is_declared: false,
        depth: 1,
        bytes: 2,
        partitions: 3,
        groups: 4,
        drops: [5, 6, 7],
        limits,
    }
}

pub fn frames() -> Vec<Frame> {
    let requests = asks().into_iter().map(|ask| Frame::Request { id: 7, waits: ask.waits(), request: request(ask) });
    let answers = answers().into_iter().map(|answer| Frame::Answer { id: u32::MAX, answer });
    let numbers = [
        Frame::Cancel { id: 1 },
        Frame::Settled { id: 2 },
        Frame::GiveBack { id: 3 },
        Frame::Credit { requests: u32::MAX },
    ];
    requests.chain(answers).chain(numbers).collect()
}
