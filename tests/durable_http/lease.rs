//! Extending leases.

use super::{
    common::{Broker, eventually},
    *,
};

fn extend(client: &mut Connection, lease: &str, body: &str) -> Value {
    let response = client.post(&format!("/api/v1/lease/{lease}/extend"), body);
    assert_eq!(response.status, 200, "{}", response.text());
    let answer = response.json();
    assert_eq!(answer["leaseId"], lease);
    assert_eq!(answer["success"], answer["renewed"] != 0, "{answer}");
    assert_eq!((&answer["newExpiresAt"], &answer["newExpiresAt"]), (&answer["expiresAt"], &answer["lease_expires_at"]));
    assert_eq!(answer["expiresAt"].is_null(), answer["renewed"] == 0, "{answer}");
    answer
}

#[test]
fn an_extension_reaches_every_partition_of_the_pop_and_shortens_none() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for partition in ["a", "b"] {
        push_to(&mut client, "q", partition, &[json!(1)]);
    }
    let popped = pop(&mut client, "q", "partitions=2&leaseSeconds=1").expect("messages");
    let lease = popped["leaseId"].as_str().expect("a lease");
    let long = extend(&mut client, lease, r#"{"seconds":600}"#);
    assert_eq!(long["renewed"], 2, "within its second");
    let short = extend(&mut client, lease, r#"{"seconds":1}"#);
    assert_eq!((&short["renewed"], &short["expiresAt"]), (&json!(2), &long["expiresAt"]));
    for body in ["", "{}", "7", r#"{"seconds":"x"}"#, r#"{"seconds":-1}"#] {
        assert_eq!(extend(&mut client, lease, body)["renewed"], 2, "{body} is a minute, or a second");
    }
    assert_eq!(pop(&mut client, "q", "partitions=2"), None, "it lives on");
}

#[test]
fn what_is_no_live_lease_renews_nothing() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    for lease in ["018f3a5b-7c00-7abc-8def-0123456789ab", "garbage"] {
        assert_eq!(extend(&mut client, lease, "")["renewed"], 0);
    }
    push(&mut client, "q", &[json!(1)]);
    let message = &messages(&pop(&mut client, "q", "leaseSeconds=600"))[0];
    taken(&ack_one(&mut client, None, ack_of(message, "completed")));
    assert_eq!(extend(&mut client, message["leaseId"].as_str().expect("a lease"), "")["renewed"], 0, "released");

    push(&mut client, "lapsing", &[json!(1)]);
    let lapsed = messages(&pop(&mut client, "lapsing", "leaseSeconds=1"))[0]["leaseId"].clone();
    let again = eventually("the end of the lease", || pop(&mut client, "lapsing", "leaseSeconds=600"));
    assert_ne!(again["leaseId"], lapsed);
    assert_eq!(extend(&mut client, lapsed.as_str().expect("a lease"), "")["renewed"], 0, "lapsed");
}
