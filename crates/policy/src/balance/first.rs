//! First: the first server of the list that has room; the others stay idle until it is full.

use super::{Balance, Field};
use crate::pool::Request;

pub(super) struct First;

impl Balance for First {
    fn pick(&self, field: &Field<'_>, request: &Request<'_>) -> Option<usize> {
        field.open(request).next()
    }
}
