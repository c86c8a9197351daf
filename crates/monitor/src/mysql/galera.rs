//! Reads a Galera node's state.

use evenkeel_policy::cluster::{
    Gtids,
    report::{Galera, GaleraState},
};
use evenkeel_wire::gtid;

use crate::row::{Row, UnexpectedValue};

/// Works in every state of the node.
pub(super) const STATUS: &str = "SHOW GLOBAL STATUS LIKE 'wsrep%'";

/// Query for the position alone.
pub(super) const POSITION: &str =
    "SELECT @@global.read_only AS read_only, WSREP_LAST_SEEN_GTID() AS seen_gtid";

/// Column of the position in its result.
pub(super) const SEEN: &str = "seen_gtid";

/// Completes after the node has applied everything that the cluster had committed before.
pub(super) const CATCH_UP: &str = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 0";

/// Returns whether the library runs. A library that was switched off while running (`wsrep_on`)
/// still makes a node, whose writes bypass its cluster.
pub(super) fn is_node(facts: &Row, status: &Row) -> Result<bool, UnexpectedValue> {
    let loaded =
        status.has("wsrep_provider_name") && !status.text(&["wsrep_provider_name"])?.is_empty();
    Ok(facts.flag(&["wsrep_on"])? || loaded)
}

pub(super) fn read(facts: &Row, status: &Row) -> Result<Galera, UnexpectedValue> {
    Ok(Galera {
        server_identity: server_identity(facts, status)?.to_owned(),
        cluster_uuid: status.text(&["wsrep_cluster_state_uuid"])?.to_owned(),
        in_primary_component: status.text(&["wsrep_cluster_status"])? == "Primary",
        state: state(status)?,
        ready: status.flag(&["wsrep_ready"])?,
        set_aside: set_aside(facts)?,
        read_only: read_only(facts)?,
        receive_queue: match status.has("wsrep_local_recv_queue") {
            true => status.number(&["wsrep_local_recv_queue"])?,
            // Before the first connect to the cluster.
            false => 0,
        },
        causal: facts.has("binlog_state"),
    })
}

/// Returns the number of the cluster's transactions that the node has committed: each node commits
/// all of them, in one order.
pub(super) fn committed(facts: &Row) -> Result<Gtids, UnexpectedValue> {
    let text = facts.text(&[SEEN])?;
    let mut read = gtid::mysql(text.as_bytes());
    let malformed =
        || UnexpectedValue::new(format!("{text:?} is not a position in a Galera cluster"));
    let seen = read.next().and_then(Result::ok).ok_or_else(malformed)?;
    Ok(Gtids::mysql([(seen.uuid, "", 1, seen.last)]))
}

/// Returns the node's identity. The library generates a new name at each start; before the connect
/// the node has no name.
fn server_identity<'a>(facts: &'a Row, status: &'a Row) -> Result<&'a str, UnexpectedValue> {
    let of_this_start = match status.has("wsrep_gcomm_uuid") {
        true => status.value(&["wsrep_gcomm_uuid"])?.unwrap_or_default(),
        false => "",
    };
    match of_this_start {
        "" => facts.text(&["server_identity"]),
        uuid => Ok(uuid),
    }
}

fn state(status: &Row) -> Result<GaleraState, UnexpectedValue> {
    if !status.has("wsrep_local_state") {
        return Ok(GaleraState::Joining);
    }
    Ok(match status.number::<u32>(&["wsrep_local_state"])? {
        2 => GaleraState::Donor,
        3 => GaleraState::Joined,
        4 => GaleraState::Synced,
        _ => GaleraState::Joining,
    })
}

fn set_aside(facts: &Row) -> Result<bool, UnexpectedValue> {
    let maintained = facts.has("pxc_maint_mode") && facts.text(&["pxc_maint_mode"])? != "DISABLED";
    let rejecting = facts.text(&["wsrep_reject_queries"])? != "NONE";
    let switched_off = !facts.flag(&["wsrep_on"])?;
    Ok(maintained || rejecting || switched_off || facts.flag(&["wsrep_desync"])?)
}

fn read_only(facts: &Row) -> Result<bool, UnexpectedValue> {
    let super_read_only = facts.has("super_read_only") && facts.flag(&["super_read_only"])?;
    Ok(super_read_only || facts.flag(&["read_only"])?)
}
