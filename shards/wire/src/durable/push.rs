//! The body of a push: `{"items": [{"queue": …, "payload": …, "partition"?: …, "transactionId"?: …}, …]}`.

use std::borrow::Cow;

use super::{ITEMS_MAX, queue, text};
use crate::body::fields::{self, required};
use crate::body::{BodyError, Span};
use crate::json::{JsonError, Scanner};
use crate::name;

/// The partition of whatever names none.
pub(super) const DEFAULT_PARTITION: &str = "Default";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// The partition's name: `Default` if the item names none.
    pub partition: Cow<'a, str>,
    /// The transaction id that the producer gave.
    pub transaction_id: Option<Cow<'a, str>>,
    /// The place of the payload in the body.
    pub payload: Span,
}

/// Reads the body of a push: its items, in order.
///
/// A payload may be nested `depth_max` deep by itself; the levels around it do not count.
///
/// # Errors
/// [`BodyError`]: one bad item refuses the whole body.
pub fn parse_push(body: &[u8], depth_max: u32) -> Result<Vec<Item<'_>>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut listed, mut items) = (Ok(None), Vec::new());
        fields::members(scanner, depth_max, |scanner, key| {
            if !key.is("items") {
                return Ok(false);
            }
            items.clear();
            listed = fields::list_of(scanner, "items", depth_max, ITEMS_MAX, |scanner, index| {
                let item = item(scanner, depth_max)?;
                Ok(item.map(|item| items.push(item)).map_err(|fault| fault.of_part(format!("items[{index}]").into())))
            })?;
            Ok(true)
        })?;
        Ok(required(listed, "items", "an array of objects").map(|_| items))
    })
}

fn item<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Result<Item<'a>, BodyError>, JsonError> {
    let (mut queue_name, mut partition, mut transaction_id, mut payload) = (Ok(None), Ok(None), Ok(None), None);
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue_name = queue(scanner, depth_max)?;
        } else if key.is("payload") {
            payload = Some(scanner.value(depth_max)?);
        } else if key.is("transactionId") {
            transaction_id = text(scanner, "transactionId", depth_max, name::check_transaction_id)?;
        } else if key.is("partition") {
            partition = text(scanner, "partition", depth_max, name::check_partition)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        Ok(Item {
            queue: required(queue_name, "queue", "a string")?,
            partition: partition?.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
            transaction_id: transaction_id?,
            payload: required(Ok(payload), "payload", "any JSON value")?.into(),
        })
    })())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::parse_push;

    fn message(body: &str) -> String {
        parse_push(body.as_bytes(), 8).expect_err(body).to_string()
    }

    #[test]
    fn items_keep_their_order_and_their_bytes() {
        let payload = "{\"b\" : 1.50,\t\"a\":[ \"\\ud800\", \"\\u0000\" ]\n}";
        let body = format!(
            r#"{{"x":1,"items":[{{"payload": {payload} ,"queue":"a b/c:\u00e9","traceId":7}},
            {{"transactionId":"","partition":"","payload":null,"queue":"q"}}]}}"#
        );
        let items = parse_push(body.as_bytes(), 8).expect("a push");
        assert_eq!(items.len(), 2);
        assert_eq!((&*items[0].queue, &*items[0].partition, &items[0].transaction_id), ("a b/c:é", "Default", &None));
        assert_eq!(&body[Range::from(items[0].payload)], payload);
        assert_eq!((&*items[1].partition, items[1].transaction_id.as_deref()), ("", Some("")));
        assert_eq!(&body[Range::from(items[1].payload)], "null");
    }

    #[test]
    fn null_is_the_default_and_the_last_list_counts() {
        let body = r#"{"items":[{}],"items":[{"queue":"q","payload":1,"partition":null,"transactionId":null}]}"#;
        let items = parse_push(body.as_bytes(), 8).expect("a push");
        assert_eq!((&*items[0].partition, &items[0].transaction_id), ("Default", &None));
        assert_eq!(parse_push(br#"{"items":[]}"#, 8), Ok(Vec::new()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_its_item() {
        let long = "q".repeat(256);
        for (items, expected) in [
            ("7".into(), "`items` must be an array".into()),
            ("[1]".into(), "`items[0]` must be an object".into()),
            (r#"[{"payload":1}]"#.into(), "in `items[0]`: `queue` is missing: it must be a string".into()),
            (
                r#"[{"queue":"q","payload":1},{"queue":"q","data":1}]"#.into(),
                "in `items[1]`: `payload` is missing: it must be any JSON value".into(),
            ),
            (r#"[{"queue":5,"payload":1}]"#.into(), "in `items[0]`: `queue` must be a string".into()),
            (r#"[{"queue":"","payload":1}]"#.into(), "in `items[0]`: `queue` is empty".into()),
            (
                format!(r#"[{{"queue":"{long}","payload":1}}]"#),
                "in `items[0]`: `queue` is longer than 255 characters".into(),
            ),
            (
                r#"[{"queue":"q","partition":"\u0001","payload":1}]"#.into(),
                "in `items[0]`: `partition` holds a control character".into(),
            ),
            (
                r#"[{"queue":"q","transactionId":"\ud800","payload":1}]"#.into(),
                "in `items[0]`: `transactionId` holds half of a surrogate pair".into(),
            ),
        ] as [(String, String); 9]
        {
            assert_eq!(message(&format!(r#"{{"items":{items}}}"#)), expected);
        }
        assert_eq!(message("{}"), "`items` is missing: it must be an array of objects");
        assert_eq!(message("[]"), "the body must be a JSON object");
        assert_eq!(message(""), "the body is not valid JSON: unexpected end at byte 0");
    }

    #[test]
    fn a_push_takes_20_000_items_and_not_one_more() {
        let body = |count| format!(r#"{{"items":[{}]}}"#, vec![r#"{"queue":"q","payload":1}"#; count].join(","));
        assert_eq!(parse_push(body(20_000).as_bytes(), 8).map(|items| items.len()), Ok(20_000));
        assert_eq!(message(&body(20_001)), "`items` has more than 20000 elements");
    }
}
