//! Maintains a worker periodically: limits of sessions, pools, counts of activities.

use std::rc::Rc;

use evenkeel_engine::timers;

use crate::access_log::AccessLog;
use crate::data_plane::describe;
use crate::session::handle::SWEEP_INTERVAL;
use crate::upstream::worker_pool::WorkerPools;
use crate::worker::Worker;

/// Runs until the worker ends.
pub(crate) async fn run(worker: Rc<Worker>) {
    loop {
        timers::sleep(SWEEP_INTERVAL).await;
        worker.sweep();
        worker.local::<WorkerPools>().run_maintenance();
        worker.local::<AccessLog>().hand_over();
        describe::record_activities(&worker);
    }
}
