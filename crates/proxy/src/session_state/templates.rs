//! Caches the analyses of texts per worker. A text that differs from a cached one in plain literals
//! only is not analyzed again.

#[cfg(test)]
mod tests;

use std::fmt;

use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::template::{Template, shape};

/// Number of cached templates. Each shape maps to one slot.
const PLACES: usize = 128;

/// Number of recently used slots that are tried before the shape is computed, which takes longer.
const TRIED: usize = 8;

/// Context that a text's analysis depends on besides the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateContext {
    /// The dialect in which texts are read.
    pub dialect: Dialect,
    /// The version of the catalog information.
    pub catalog: u64,
}

/// Cache of analyses by the shapes of texts. The default is empty and allocates nothing.
pub struct Templates<M> {
    places: Vec<TemplateSlot<M>>,
    /// The slots that matched most recently; most texts occur repeatedly.
    tried: [usize; TRIED],
    /// The index in `tried` that is replaced next.
    oldest: usize,
}

struct TemplateSlot<M> {
    /// The shape that this slot was last searched for; a text is cached at its second occurrence
    /// only.
    shape: u64,
    known: Option<Box<CachedAnalysis<M>>>,
}

struct CachedAnalysis<M> {
    template: Template,
    within: TemplateContext,
    meaning: M,
}

impl<M: Clone> Templates<M> {
    /// Returns the analysis of a text: a cached one if the texts differ in plain literals only,
    /// else the result of `read`. The result is cached if `is_fixed` returns that it does not
    /// depend on literals.
    pub fn meaning(
        &mut self,
        text: &[u8],
        within: TemplateContext,
        is_fixed: impl FnOnce(&M) -> bool,
        read: impl FnOnce() -> M,
    ) -> M {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, TemplateSlot::default);
        }
        let mut tried = self.tried.iter();
        if let Some(known) = tried.find_map(|&index| self.places[index].known_of(text, within)) {
            return known.clone();
        }
        let shape = shape(text);
        let index = (shape >> 57) as usize % PLACES;
        let place = &mut self.places[index];
        if let Some(known) = place.known_of(text, within) {
            self.tried[self.oldest] = index;
            self.oldest = (self.oldest + 1) % TRIED;
            return known.clone();
        }
        let meaning = read();
        let is_known_shape = std::mem::replace(&mut place.shape, shape) == shape;
        if is_known_shape && is_fixed(&meaning) {
            let template = Template::of(text, within.dialect);
            place.known = template.map(|template| {
                Box::new(CachedAnalysis {
                    template,
                    within,
                    meaning: meaning.clone(),
                })
            });
        }
        meaning
    }
}

impl<M> TemplateSlot<M> {
    fn known_of(&self, text: &[u8], within: TemplateContext) -> Option<&M> {
        let known = self.known.as_deref()?;
        let fits = known.within == within && known.template.fits(text);
        fits.then_some(&known.meaning)
    }
}

impl<M> Default for Templates<M> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            tried: [0; TRIED],
            oldest: 0,
        }
    }
}

impl<M> Default for TemplateSlot<M> {
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
