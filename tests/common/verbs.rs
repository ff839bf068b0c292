//! The ephemeral verbs over one [`Connection`], for tests whose subject is not the client: each
//! sends one request, insists on the success that the verb has, and returns what it answered.

use serde_json::{Value, json};

use super::{Connection, Response};

/// A delivered message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The delivery's id, for the ack.
    pub id: String,
    /// The partition it was pushed to.
    pub partition: String,
    /// 1 at the first delivery.
    pub attempts: u64,
    /// What was pushed.
    pub payload: Value,
}

impl Connection {
    /// Pushes `payloads` to `queue`; the whole answer, whatever it is.
    pub fn try_push(&mut self, queue: &str, payloads: &[Value]) -> Response {
        let messages: Vec<Value> = payloads.iter().map(|payload| json!({ "payload": payload })).collect();
        let body = json!({ "queue": queue, "messages": messages });
        self.post("/api/v1/ephemeral/push", body.to_string())
    }

    /// Pushes one payload to the default partition of `queue`.
    pub fn push(&mut self, queue: &str, payload: Value) {
        self.push_all(queue, &[payload]);
    }

    /// Pushes `payloads` in one call.
    pub fn push_all(&mut self, queue: &str, payloads: &[Value]) {
        let response = self.try_push(queue, payloads);
        assert_eq!(response.status, 201, "{}", response.text());
        assert_eq!(response.json(), json!({ "pushed": payloads.len() }));
    }

    /// Pushes one payload to a named partition.
    pub fn push_to(&mut self, queue: &str, partition: &str, payload: Value) {
        let body = json!({
            "queue": queue, "partition": partition, "messages": [{ "payload": payload }],
        });
        let response = self.post("/api/v1/ephemeral/push", body.to_string());
        assert_eq!(response.status, 201, "{}", response.text());
    }

    /// Pops with a query such as `queue=q&batch=10&autoAck=true`.
    pub fn pop(&mut self, query: &str) -> Vec<Message> {
        self.send_pop(query);
        self.popped()
    }

    /// Sends a pop and does not wait for its answer.
    pub fn send_pop(&mut self, query: &str) {
        let target = format!("/api/v1/ephemeral/pop?{query}");
        self.send(request("GET", &target, &[], b""));
    }

    /// The answer of a pop that was sent before.
    pub fn popped(&mut self) -> Vec<Message> {
        let response = self.response();
        assert_eq!(response.status, 200, "{}", response.text());
        let body = response.json();
        assert!(body["queue"].is_string(), "the queue in {body}");
        body["messages"]
            .as_array()
            .unwrap_or_else(|| panic!("messages in {body}"))
            .iter()
            .map(|message| Message {
                id: message["id"].as_str().expect("an id").to_owned(),
                partition: message["partition"].as_str().expect("a partition").to_owned(),
                attempts: message["attempts"].as_u64().expect("attempts"),
                payload: message["payload"].clone(),
            })
            .collect()
    }

    /// Acks `ids` with one status, and the outcome of each.
    pub fn ack(&mut self, queue: &str, group: Option<&str>, ids: &[&str], status: &str) -> Vec<String> {
        let acks: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "status": status })).collect();
        let mut body = json!({ "queue": queue, "acks": acks });
        if let Some(group) = group {
            body["group"] = json!(group);
        }
        let response = self.post("/api/v1/ephemeral/ack", body.to_string());
        assert_eq!(response.status, 200, "{}", response.text());
        outcomes(&response.json(), ids)
    }

    /// Declares `queue` with `options`.
    pub fn configure(&mut self, queue: &str, options: &Value) {
        let body = json!({ "queue": queue, "options": options });
        let response = self.post("/api/v1/ephemeral/configure", body.to_string());
        assert_eq!(response.status, 201, "{}", response.text());
        assert_eq!(response.json()["options"], *options, "the options as they were sent");
    }

    /// The depth read of `queue`.
    pub fn depth(&mut self, queue: &str) -> Value {
        let response = self.get(&format!("/api/v1/ephemeral/queues/{queue}/depth"));
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    }
}

/// The outcomes in an ack's answer, after a check that they are for `ids` in their order.
pub fn outcomes(answer: &Value, ids: &[&str]) -> Vec<String> {
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("results in {answer}"));
    let answered: Vec<&str> = results.iter().filter_map(|result| result["id"].as_str()).collect();
    assert_eq!(answered, ids, "a result for each ack, in order");
    results.iter().map(|result| result["outcome"].as_str().expect("an outcome").to_owned()).collect()
}

/// The payloads of `messages`.
pub fn payloads(messages: &[Message]) -> Vec<Value> {
    messages.iter().map(|message| message.payload.clone()).collect()
}

/// The bytes of a request with the usual headers, `extra` ones and a body.
pub fn request(method: &str, target: &str, extra: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nhost: broker\r\n").into_bytes();
    for (name, value) in extra {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || method == "POST" {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}
