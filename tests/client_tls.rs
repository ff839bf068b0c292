//! The published Rust client, unmodified, over TLS and with tokens, as two tenants of one broker.
//!
//! The client trusts what the system trusts, or the file that `SSL_CERT_FILE` names: which has to be there when a process
//! starts, so the test starts itself once more.

mod common;

use std::env;
use std::process::Command;
use std::time::Duration;

use common::{Broker, SECRET, in_s, token};
use queen_mq::{Config, Queen, Result, SubscriptionMode};
use serde_json::{Value, json};

/// Where the broker is, for the process that is the client.
const BROKER_URL: &str = "QUEEN_TEST_BROKER_URL";

const TENANTS: [&str; 2] = ["6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab", "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab"];

#[test]
fn two_tenants_make_their_round_trips_over_tls_with_tokens() {
    if let Ok(url) = env::var(BROKER_URL) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        return runtime.block_on(round_trips(&url)).expect("round trips");
    }
    let broker = Broker::start_tls(&[
        ("JWT_ENABLED", "true"),
        ("JWT_SECRET", SECRET),
        ("QUEEN_TENANCY_HEADER", "true"),
        ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false"),
    ]);
    let client = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "two_tenants_make_their_round_trips_over_tls_with_tokens", "--nocapture"])
        .env(BROKER_URL, broker.url())
        .env("SSL_CERT_FILE", broker.certificates().authority_file())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&client.stdout) + String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success() && said.contains("both made their round trips"), "{said}");
}

/// A client with a token of these claims.
fn connect(url: &str, claims: &Value) -> Result<Queen> {
    Queen::connect(Config::new(url).bearer_token(token(claims)).retry_attempts(1))
}

async fn round_trips(url: &str) -> Result<()> {
    let claims = |tenant: &str| json!({ "role": "admin", "exp": in_s(600), "tenant_id": tenant });
    let clients = [connect(url, &claims(TENANTS[0]))?, connect(url, &claims(TENANTS[1]))?];
    // Everybody pushes first, to the same names.
    for (n, queen) in clients.iter().enumerate() {
        queen.ephemeral().push("q", json!({ "of": n })).send().await?;
        queen.queue("q").partition("p").push(json!({ "of": n })).await?;
    }
    for (n, queen) in clients.iter().enumerate() {
        let ephemeral = queen.ephemeral();
        let batch = ephemeral.pop("q").batch(10).wait(true).poll_timeout(Duration::from_secs(30)).send().await?;
        assert_eq!(batch.messages.iter().map(|message| &message.payload).collect::<Vec<_>>(), [&json!({ "of": n })]);
        ephemeral.ack(&batch).await?;
        let queue = queen.queue("q").group("g").subscription_mode(SubscriptionMode::All);
        let messages = queue.wait(true).batch(10).pop().await?;
        assert_eq!(messages.iter().map(|message| &message.data).collect::<Vec<_>>(), [&json!({ "of": n })]);
        queen.ack_all(&messages).await?;
        assert_eq!(ephemeral.depth("q").await?["pending"], 0);
    }
    // Another tenant's name in the header, a token that is over, and none at all.
    let mixed = Config::new(url).bearer_token(token(&claims(TENANTS[0]))).header("x-queen-tenant", TENANTS[1]);
    let refused = [
        (Queen::connect(mixed)?, 403),
        (connect(url, &json!({ "role": "admin", "exp": in_s(-600) }))?, 401),
        (Queen::connect(Config::new(url))?, 401),
        (connect(url, &json!({ "role": "read-only" }))?, 403),
    ];
    for (queen, status) in refused {
        let error = queen.queue("q").push(json!(1)).await.expect_err("a refusal");
        assert_eq!(error.status(), Some(status), "{error}");
        let error = queen.ephemeral().push("q", json!(1)).send().await.expect_err("a refusal");
        assert_eq!(error.status(), Some(status), "{error}");
    }
    println!("both made their round trips");
    Ok(())
}
