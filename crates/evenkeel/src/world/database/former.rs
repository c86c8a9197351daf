//! Who took a service's writes before: what is under way there ends, or is cut.

use evenkeel_proxy::record::CutReason;

use super::serving;
use crate::world::World;

impl World {
    /// A new part of a server reaches the sessions, and who waits for a primary goes on.
    pub(super) fn publish_cast(&mut self, index: usize, writers: Vec<u64>) {
        if self.cast_has_changed(index) {
            self.publish(index);
        }
        let before = std::mem::replace(&mut self.services[index].writers, writers);
        for former in before {
            match self.services[index].writers.contains(&former) {
                true => {}
                false if self.may_end(index, former) => {
                    self.services[index].writers.push(former);
                }
                false => self.cut_at_former(index, former),
            }
        }
        serving::tell_turn(&self.services[index].service);
    }

    /// Whether what is under way at a server that takes a service's writes no more may end.
    fn may_end(&self, index: usize, former: u64) -> bool {
        let plan = &self.services[index].plan;
        if !plan.has_several_writers() {
            return self.is_leaving(former);
        }
        let addresses = plan.servers.iter().map(|one| &one.address);
        let mut clusters = addresses.filter_map(|address| self.cluster_of(address));
        clusters.any(|cluster| cluster.may_finish(former))
    }

    fn cut_at_former(&self, index: usize, former: u64) {
        let service_id = self.services[index].service.id;
        self.engine
            .cut(Some(service_id), Some(former), CutReason::PrimaryChanged);
    }
}
