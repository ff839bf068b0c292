//! The durable routes as the clients of this program use them.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::{
    history::{AckWord, PushStatus},
    http::{Answer, Connection},
};

/// Why a request brought nothing.
#[derive(Debug)]
pub enum Trouble {
    /// No answer, or one that says that the broker or its store is not well: nobody knows whether it was carried out.
    Unanswered,
    /// An answer that should not be, in words.
    Refused(String),
}

/// A message to push.
pub struct Item<'a> {
    /// Its partition's name.
    pub partition: String,
    /// Its transaction id.
    pub transaction_id: &'a str,
    /// Its payload as JSON text.
    pub payload: String,
}

/// What a push says of a message.
pub struct PushAnswer {
    /// The word.
    pub status: PushStatus,
    /// The id, unless it is told that there is none.
    pub message_id: Option<String>,
    /// The offset, where the broker tells.
    pub offset: Option<u64>,
}

/// What a pop asks for.
pub struct Pop<'a> {
    /// The group.
    pub group: &'a str,
    /// The most messages.
    pub batch: usize,
    /// The most partitions.
    pub partitions: usize,
    /// How long it waits for the first message, in milliseconds.
    pub wait_ms: u64,
    /// How long its lease lasts; `None` acknowledges at delivery.
    pub lease_s: Option<u64>,
}

/// A message that was popped.
pub struct Popped {
    /// Its transaction id.
    pub transaction_id: String,
    /// Its id.
    pub message_id: String,
    /// Its partition's name and id.
    pub partition: String,
    /// See `partition`.
    pub partition_id: String,
    /// Its offset, where the broker tells.
    pub offset: Option<u64>,
    /// Its payload.
    pub payload: Value,
}

/// What is said of a message.
pub struct AckRequest<'a> {
    /// Its transaction id.
    pub transaction_id: &'a str,
    /// Its partition's id.
    pub partition_id: &'a str,
    /// The word.
    pub word: AckWord,
}

/// A client of one queue, on a connection of its own.
pub struct Client {
    connection: Connection,
    queue: String,
}

impl Client {
    /// A client of the queue of this name, which has nothing in it that a path would have to escape.
    pub fn new(address: SocketAddr, queue: &str) -> Self {
        Self { connection: Connection::new(address), queue: queue.to_owned() }
    }

    /// Declares the queue, with retries that never end in a dead letter: what fails comes again.
    pub fn declare(&mut self) -> Result<(), Trouble> {
        let body = json!({"queue": self.queue, "options": {"retryLimit": 1_000_000, "dedupWindowSeconds": 86_400}});
        self.post("/api/v1/configure", &body).map(drop)
    }

    /// Pushes these messages in one request.
    pub fn push(&mut self, items: &[Item<'_>]) -> Result<Vec<PushAnswer>, Trouble> {
        let item = |item: &Item<'_>| {
            // The payload is text already: what goes out is what was made.
            format!(
                r#"{{"queue":"{}","partition":"{}","transactionId":"{}","payload":{}}}"#,
                self.queue, item.partition, item.transaction_id, item.payload
            )
        };
        let body = format!(r#"{{"items":[{}]}}"#, items.iter().map(item).collect::<Vec<_>>().join(","));
        let answer = self.connection.request("POST", "/api/v1/push", Some(&body)).map_err(|_| Trouble::Unanswered)?;
        let answer = json_of(&answer, "push")?;
        let results = answer.as_array().filter(|results| results.len() == items.len());
        let results = results.ok_or_else(|| Trouble::Refused(format!("a push is answered with {answer}")))?;
        results.iter().map(push_answer).collect()
    }

    /// Pops.
    pub fn pop(&mut self, pop: &Pop<'_>) -> Result<(String, Vec<Popped>), Trouble> {
        let Pop { group, batch, partitions, wait_ms, lease_s } = pop;
        let wait = if *wait_ms > 0 { format!("&wait=true&timeout={wait_ms}") } else { String::new() };
        let lease = lease_s.map_or("&autoAck=true".to_owned(), |seconds| format!("&leaseSeconds={seconds}"));
        let path = format!(
            "/api/v1/pop/queue/{}?consumerGroup={group}&subscriptionMode=all&batch={batch}&partitions={partitions}{wait}{lease}",
            self.queue
        );
        let answer = self.connection.request("GET", &path, None).map_err(|_| Trouble::Unanswered)?;
        if answer.status == 204 {
            return Ok((String::new(), Vec::new()));
        }
        let mut answer = json_of(&answer, "pop")?;
        let lease = text(&answer, "leaseId");
        let messages = answer["messages"].take();
        let Value::Array(messages) = messages else {
            return Err(Trouble::Refused(format!("a pop is answered with {answer}")));
        };
        Ok((lease, messages.into_iter().map(popped).collect()))
    }

    /// Acknowledges messages under one lease, and says of each whether the broker took it.
    pub fn ack(&mut self, group: &str, lease_id: &str, items: &[AckRequest<'_>]) -> Result<Vec<bool>, Trouble> {
        let item = |item: &AckRequest<'_>| {
            json!({"transactionId": item.transaction_id, "partitionId": item.partition_id, "leaseId": lease_id,
                "status": item.word.text(), "consumerGroup": group})
        };
        let answer = match items {
            [one] => self.post("/api/v1/ack", &item(one))?,
            many => {
                let acknowledgments: Vec<_> = many.iter().map(item).collect();
                self.post("/api/v1/ack/batch", &json!({"acknowledgments": acknowledgments, "consumerGroup": group}))?
            }
        };
        let results = answer.as_array().filter(|results| results.len() == items.len());
        let results = results.ok_or_else(|| Trouble::Refused(format!("an ack is answered with {answer}")))?;
        // A store that is away is told in the body: then nobody knows.
        let is_away = |result: &Value| matches!(result["error"].as_str(), Some(text) if is_away(text));
        if results.iter().any(is_away) {
            return Err(Trouble::Unanswered);
        }
        Ok(results.iter().map(|result| result["success"] == true).collect())
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value, Trouble> {
        let answer = self.connection.request("POST", path, Some(&body.to_string())).map_err(|_| Trouble::Unanswered)?;
        json_of(&answer, path)
    }
}

/// Whether an ack's error says that the store is away.
fn is_away(error: &str) -> bool {
    ["pool", "db error", "ack flush failed", "store", "unavailable"].iter().any(|word| error.contains(word))
}

fn json_of(answer: &Answer, what: &str) -> Result<Value, Trouble> {
    match answer.status {
        200..300 => serde_json::from_slice(&answer.body)
            .map_err(|error| Trouble::Refused(format!("{what}: the answer is no JSON: {error}"))),
        500.. => Err(Trouble::Unanswered),
        status => Err(Trouble::Refused(format!("{what}: {status} {}", String::from_utf8_lossy(&answer.body)))),
    }
}

/// The id of a message that cannot be read any more.
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

fn push_answer(result: &Value) -> Result<PushAnswer, Trouble> {
    let status = match result["status"].as_str() {
        Some("queued") => PushStatus::Queued,
        Some("duplicate") => PushStatus::Duplicate,
        Some("buffered") => PushStatus::Buffered,
        _ => return Err(Trouble::Refused(format!("a push says {result}"))),
    };
    let message_id = result["message_id"].as_str().filter(|id| *id != NO_ID && status != PushStatus::Buffered);
    Ok(PushAnswer { status, message_id: message_id.map(Into::into), offset: result["offset"].as_u64() })
}

fn popped(mut message: Value) -> Popped {
    Popped {
        transaction_id: text(&message, "transactionId"),
        message_id: text(&message, "id"),
        partition: text(&message, "partition"),
        partition_id: text(&message, "partitionId"),
        offset: message["offset"].as_u64(),
        payload: message["data"].take(),
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
