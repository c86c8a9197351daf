//! Meanings of texts that a worker has read, for those that differ from them in plain literals
//! only: such texts are not read again.

#[cfg(test)]
mod tests;

use std::fmt;

use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::template::{Template, shape};

/// How many are kept; a shape has one place.
const PLACES: usize = 128;

/// Whose literals make no difference, and what that hangs on besides its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within {
    /// How texts are read.
    pub dialect: Dialect,
    /// What is known of the catalog.
    pub catalog: u64,
}

/// What texts mean, by their shape. The default keeps nothing yet and takes no memory.
pub struct Templates<M> {
    places: Vec<Place<M>>,
}

struct Place<M> {
    /// The shape that was looked for here last: what comes once only is not kept.
    shape: u64,
    known: Option<Box<Known<M>>>,
}

struct Known<M> {
    template: Template,
    within: Within,
    meaning: M,
}

impl<M: Clone> Templates<M> {
    /// What a text means: as one that was read and differs in plain literals only, or what `read`
    /// makes of it, which is kept if `is_fixed` says that literals make no difference to it.
    pub fn meaning(
        &mut self,
        text: &[u8],
        within: Within,
        is_fixed: impl FnOnce(&M) -> bool,
        read: impl FnOnce() -> M,
    ) -> M {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let shape = shape(text);
        let place = &mut self.places[(shape >> 57) as usize % PLACES];
        if let Some(known) = &place.known
            && known.within == within
            && known.template.fits(text)
        {
            return known.meaning.clone();
        }
        let meaning = read();
        let is_known_shape = std::mem::replace(&mut place.shape, shape) == shape;
        if is_known_shape && is_fixed(&meaning) {
            let template = Template::of(text, within.dialect);
            place.known = template.map(|template| {
                Box::new(Known {
                    template,
                    within,
                    meaning: meaning.clone(),
                })
            });
        }
        meaning
    }
}

impl<M> Default for Templates<M> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<M> Default for Place<M> {
    fn default() -> Self {
        Self {
            shape: 0,
            known: None,
        }
    }
}

impl<M> fmt::Debug for Templates<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.places.iter().filter(|place| place.known.is_some());
        write!(f, "{} templates", known.count())
    }
}
