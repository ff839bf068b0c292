//! What a broker on an open port meets: broken framing, broken JSON, clients that dribble, vanish,
//! or take every file it may open. Each gets a clear error or is served right; the process lives,
//! and a bystander that waits on another connection feels nothing.

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod corners;
mod fields;
mod framing;
mod json;

use common::{Broker, Connection, Response, eventually, payloads};
use serde_json::json;

const PUSH: &str = "/api/v1/ephemeral/push";
const BAD_JSON: (u16, &str) = (400, "bad_request");
const BAD_FIELD: (u16, &str) = (400, "ephemeral_bad_request");

/// A broker with a bystander: a client whose pop waits while the test does its worst.
struct Scene {
    broker: Broker,
    bystander: Connection,
}

impl Scene {
    fn set() -> Self {
        Self::set_with(&[])
    }

    fn set_with(settings: &[(&str, &str)]) -> Self {
        let broker = Broker::start(settings);
        let mut bystander = broker.connect();
        bystander.send_pop("queue=bystander&wait=true&timeout=300000&autoAck=true");
        eventually("the bystander's parking", || (broker.parked() == 1).then_some(()));
        Self { broker, bystander }
    }

    fn connect(&self) -> Connection {
        self.broker.connect()
    }

    /// Sends `bytes` on a connection of their own: the answer must be this error, and the last
    /// thing on that connection.
    #[track_caller]
    fn refuses(&self, bytes: impl AsRef<[u8]>, error: (u16, &str)) {
        let mut hostile = self.connect();
        // The broker may answer and close before it has read everything.
        let _ = hostile.try_send(bytes);
        assert_fails(&hostile.response(), error);
        assert!(hostile.is_closed_by_peer(), "the connection is closed after broken framing");
    }

    /// Sends a well-framed request: the answer must be this error, and the connection serves on.
    #[track_caller]
    fn rejects(&self, method: &str, target: &str, body: impl AsRef<[u8]>, error: (u16, &str)) {
        let mut client = self.connect();
        assert_fails(&client.request(method, target, body.as_ref()), error);
        assert_eq!(client.get("/health").status, 200, "the connection serves on");
    }

    /// The process lives, and the bystander is woken by a push as if nothing had been.
    #[track_caller]
    fn ends_unharmed(mut self) {
        self.broker.assert_alive();
        self.connect().push("bystander", json!("calm"));
        assert_eq!(payloads(&self.bystander.popped()), [json!("calm")]);
    }
}

#[track_caller]
fn assert_fails(response: &Response, (status, code): (u16, &str)) {
    assert_eq!(response.failure(), (status, code.to_owned()), "{}", response.text());
}

/// A push whose message list is `messages`, as it is.
fn push_body(messages: &str) -> String {
    format!(r#"{{"queue":"q","messages":{messages}}}"#)
}
