//! Meanings of texts that a worker has read, for those that differ from them in plain literals
//! only: such texts are not read again.

#[cfg(test)]
mod tests;

use std::fmt;

use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::template::{Template, shape};

/// How many are kept; a shape has one place.
const PLACES: usize = 128;

/// How many are tried before a text's shape is looked at, which takes longer than trying them.
const TRIED: usize = 8;

/// Whose literals make no difference, and what that hangs on besides its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateContext {
    /// How texts are read.
    pub dialect: Dialect,
    /// What is known of the catalog.
    pub catalog: u64,
}

/// What texts mean, by their shape. The default keeps nothing yet and takes no memory.
pub struct Templates<M> {
    places: Vec<TemplateSlot<M>>,
    /// Places that texts fitted last: most come again and again.
    tried: [usize; TRIED],
    /// Which of those the next one replaces.
    oldest: usize,
}

struct TemplateSlot<M> {
    /// The shape that was looked for here last: what comes once only is not kept.
    shape: u64,
    known: Option<Box<CachedAnalysis<M>>>,
}

struct CachedAnalysis<M> {
    template: Template,
    within: TemplateContext,
    meaning: M,
}

impl<M: Clone> Templates<M> {
    /// What a text means: as one that was read and differs in plain literals only, or what `read`
    /// makes of it, which is kept if `is_fixed` says that literals make no difference to it.
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
