//! What operators have switched and granted.

use queen_fabric::protocol::{Control, ControlAsk, Grant, Switch};
use queen_store::{Job, JobDone};

use crate::rig::Rig;

async fn control(rig: &Rig, ask: ControlAsk) -> (Control, bool) {
    match rig.outcome(rig.start(Job::Control(ask))).await {
        Ok(JobDone::Control { control, changed }) => (control, changed),
        other => panic!("{other:?}"),
    }
}

async fn loaded(rig: &Rig) -> Control {
    let (loaded, changed) = control(rig, ControlAsk::Load).await;
    assert!(!changed, "a look changes nothing");
    loaded
}

fn with(grants: &[([u8; 16], Grant)]) -> Control {
    Control { grants: grants.iter().copied().collect(), ..Control::default() }
}

const UNLIMITED: Grant = Grant { enabled: true, max_bytes: None, max_queues: None, max_msgs_per_sec: None };
const LIMITED: Grant =
    Grant { enabled: false, max_bytes: Some(1), max_queues: Some(0), max_msgs_per_sec: Some(i64::MAX as u64) };

pub async fn where_nobody_said_anything_everything_is_on_and_nothing_granted(rig: &Rig) {
    assert_eq!(loaded(rig).await, Control::default());
    assert!(Control::default().ephemeral_enabled);
}

pub async fn a_switch_stays_where_it_was_put(rig: &Rig) {
    for switch in Switch::ALL {
        let default = switch.default_on();
        let mut put = Control::default();
        put.set(switch, !default);
        for (on, expected) in
            [(default, (Control::default(), false)), (!default, (put.clone(), true)), (!default, (put.clone(), false))]
        {
            assert_eq!(control(rig, ControlAsk::Set(switch, on)).await, expected, "{switch:?}");
            assert_eq!(loaded(rig).await, expected.0, "{switch:?}");
        }
        for changed in [true, false] {
            assert_eq!(control(rig, ControlAsk::Set(switch, default)).await, (Control::default(), changed));
        }
        assert!(control(rig, ControlAsk::Set(switch, !default)).await.1);
        assert_eq!(loaded(rig).await, put);
        control(rig, ControlAsk::Set(switch, default)).await;
    }
}

pub async fn switches_do_not_touch_each_other(rig: &Rig) {
    let mut expected = Control::default();
    for switch in Switch::ALL {
        expected.set(switch, !switch.default_on());
        assert_eq!(control(rig, ControlAsk::Set(switch, !switch.default_on())).await, (expected.clone(), true));
    }
    assert_eq!(loaded(rig).await, expected);
}

pub async fn grants_come_back_in_every_field_and_each_for_its_tenant(rig: &Rig) {
    let (one, other) = ([7; 16], [8; 16]);
    assert_eq!(control(rig, ControlAsk::PutGrant(one, LIMITED)).await, (with(&[(one, LIMITED)]), true));
    let both = with(&[(one, LIMITED), (other, UNLIMITED)]);
    assert_eq!(control(rig, ControlAsk::PutGrant(other, UNLIMITED)).await, (both.clone(), true));
    assert_eq!(loaded(rig).await, both);
    let switched = Control { ephemeral_enabled: false, ..both };
    assert_eq!(control(rig, ControlAsk::Set(Switch::Ephemeral, false)).await, (switched.clone(), true));
    assert_eq!(loaded(rig).await, switched);
}

pub async fn a_grant_is_replaced_whole_and_taken_away_once(rig: &Rig) {
    let (one, other) = ([7; 16], [8; 16]);
    control(rig, ControlAsk::PutGrant(other, UNLIMITED)).await;
    let some = Grant { max_bytes: Some(5), ..UNLIMITED };
    for grant in [LIMITED, some, Grant { max_queues: Some(0), ..some }, UNLIMITED] {
        let expected = with(&[(one, grant), (other, UNLIMITED)]);
        assert_eq!(control(rig, ControlAsk::PutGrant(one, grant)).await, (expected.clone(), true), "{grant:?}");
        assert_eq!(control(rig, ControlAsk::PutGrant(one, grant)).await, (expected.clone(), false), "the same again");
        assert_eq!(loaded(rig).await, expected);
    }
    let left = with(&[(other, UNLIMITED)]);
    assert_eq!(control(rig, ControlAsk::RemoveGrant(one)).await, (left.clone(), true));
    assert_eq!(control(rig, ControlAsk::RemoveGrant(one)).await, (left.clone(), false));
    assert_eq!(loaded(rig).await, left);
}

pub async fn a_limit_beyond_what_is_stored_is_the_most_that_is(rig: &Rig) {
    let most = Some(i64::MAX.cast_unsigned());
    let asked = Grant { max_bytes: Some(u64::MAX), max_queues: Some(1 << 63), max_msgs_per_sec: most, ..UNLIMITED };
    let kept = with(&[([7; 16], Grant { max_bytes: most, max_queues: most, ..asked })]);
    assert_eq!(control(rig, ControlAsk::PutGrant([7; 16], asked)).await, (kept.clone(), true));
    assert_eq!(control(rig, ControlAsk::PutGrant([7; 16], asked)).await, (kept.clone(), false));
    assert_eq!(loaded(rig).await, kept);
}

pub async fn what_an_operator_wrote_by_hand_is_read(rig: &Rig) {
    rig.sql("INSERT INTO @switch (name, enabled) VALUES ('ephemeral', false), ('another', true)");
    let mut expected = Control { ephemeral_enabled: false, ..Control::default() };
    assert_eq!(loaded(rig).await, expected);
    rig.sql("UPDATE @switch SET enabled = true WHERE name = 'ephemeral'");
    expected.ephemeral_enabled = true;
    assert_eq!(control(rig, ControlAsk::Set(Switch::Ephemeral, true)).await, (expected.clone(), false));
    expected.ephemeral_enabled = false;
    assert_eq!(control(rig, ControlAsk::Set(Switch::Ephemeral, false)).await, (expected.clone(), true));
    assert_eq!(loaded(rig).await, expected);
    assert_eq!(rig.count("SELECT count(*) FROM @switch WHERE name = 'another'"), 1);
}
