//! Algorithm `first`: chooses the first server of the list that is not full; later servers stay
//! idle until then.

use super::{Balance, CandidateSet};
use crate::server_set::PickRequest;

pub(super) struct First;

impl Balance for First {
    fn pick(&self, candidates: &CandidateSet<'_>, request: &PickRequest<'_>) -> Option<usize> {
        candidates.open(request).next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Algorithm, Load, Member, MemberSet, Pick, PickRequest, ServerSet};

    #[test]
    fn servers_fill_up_in_the_order_of_the_list() {
        let member = |id| Member {
            id,
            weight: 10,
            backup: false,
            accepting: true,
            load: Arc::new(Load::new(Some(2))),
        };
        let members = (0..3).map(member).collect();
        let pool = ServerSet::new(Algorithm::First, members, Arc::default());
        let tried = &MemberSet::none();
        let pick = || {
            pool.pick(&PickRequest {
                key: 9,
                tried,
                random: 9,
                now_us: 9,
            })
        };
        assert_eq!([pick(), pick(), pick()], [0, 0, 1].map(Pick::Server));
        pool.members()[0].load.release();
        assert_eq!(
            [pick(), pick(), pick(), pick()],
            [0, 1, 2, 2].map(Pick::Server)
        );
    }
}
