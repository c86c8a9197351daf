//! Reads the state of a MySQL Group Replication member, and its view of the others.

use evenkeel_policy::cluster::report::{Group, MemberState};

use super::replication;
use crate::row::{Row, UnexpectedValue};

/// One row, even if the group does not run. An expelled member sees only itself.
pub(super) const VIEW: &str = "SELECT own.MEMBER_STATE AS state, own.MEMBER_ROLE AS role, \
    stats.VIEW_ID AS view_id, \
    stats.COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE AS applier_queue, \
    (SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ID <> '') AS members, \
    (SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ID <> '' AND MEMBER_STATE <> 'UNREACHABLE') AS members_reachable, \
    (SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ROLE = 'PRIMARY') AS primaries, \
    (SELECT TIMESTAMPDIFF(MICROSECOND, \
      MIN(APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP), NOW(6)) \
     FROM performance_schema.replication_applier_status_by_worker \
     WHERE CHANNEL_NAME = 'group_replication_applier' AND APPLYING_TRANSACTION <> '') \
    AS applying_us \
    FROM (SELECT @@global.server_uuid AS id) AS me \
    LEFT JOIN performance_schema.replication_group_members AS own ON own.MEMBER_ID = me.id \
    LEFT JOIN performance_schema.replication_group_member_stats AS stats \
    ON stats.MEMBER_ID = me.id";

/// Returns whether the plugin is loaded and has a group, running or not: a member that left its
/// group is not a standalone server.
pub(super) fn is_member(facts: &Row) -> Result<bool, UnexpectedValue> {
    if !facts.has("group_name") {
        return Ok(false);
    }
    Ok(facts
        .value(&["group_name"])?
        .is_some_and(|name| !name.is_empty()))
}

pub(super) fn read(facts: &Row, view: &Row) -> Result<Group, UnexpectedValue> {
    let (incarnation, number) = view_id(view)?;
    let applier_queue = view.number_or_null(&["applier_queue"])?.unwrap_or(0);
    Ok(Group {
        group_name: facts.text(&["group_name"])?.to_owned(),
        server_identity: facts.text(&["server_identity"])?.to_owned(),
        state: state(view)?,
        is_primary: view.value(&["role"])? == Some("PRIMARY"),
        read_only: facts.flag(&["super_read_only"])? || facts.flag(&["read_only"])?,
        members: view.number(&["members"])?,
        members_reachable: view.number(&["members_reachable"])?,
        primaries: view.number(&["primaries"])?,
        incarnation,
        view: number,
        applier_queue,
        lag_ms: lag_ms(view.number_or_null(&["applying_us"])?, applier_queue),
        visible: replication::visible(facts)?,
    })
}

fn state(view: &Row) -> Result<MemberState, UnexpectedValue> {
    Ok(match view.value(&["state"])?.unwrap_or("OFFLINE") {
        "ONLINE" => MemberState::Online,
        "RECOVERING" => MemberState::Recovering,
        "OFFLINE" => MemberState::Offline,
        "ERROR" => MemberState::Error,
        "UNREACHABLE" => MemberState::Unreachable,
        other => return Err(UnexpectedValue::new(format!("MEMBER_STATE is {other:?}"))),
    })
}

/// Parses "16963239123456789:5": the group's start, and the number of membership changes since.
fn view_id(view: &Row) -> Result<(String, u64), UnexpectedValue> {
    let id = view.value(&["view_id"])?.unwrap_or_default();
    match id.rsplit_once(':') {
        None => Ok((String::new(), 0)),
        Some((incarnation, number)) => match number.parse() {
            Ok(number) => Ok((incarnation.to_owned(), number)),
            Err(_) => Err(UnexpectedValue::new(format!("VIEW_ID is {id:?}"))),
        },
    }
}

fn lag_ms(applying_us: Option<i64>, applier_queue: u64) -> Option<u64> {
    match applying_us {
        // The clocks of two servers differ, but a replica cannot be ahead of its source.
        Some(us) => Some(u64::try_from(us).unwrap_or(0) / 1000),
        None => (applier_queue == 0).then_some(0),
    }
}
