//! Caches the analyses of texts per worker. A text that differs from a cached one in plain literals
//! only is not analyzed again.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::Dialect;
use crate::template::{Template, shape};

/// Number of cached templates. Each shape maps to one slot.
const SLOTS: usize = 128;

/// Number of recently used slots that are tried before the shape is computed, which takes longer.
const RECENT: usize = 8;

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
    slots: Vec<TemplateSlot<M>>,
    /// The slots that matched most recently; most texts occur repeatedly.
    recent: [usize; RECENT],
    /// The index in `recent` that is replaced next.
    oldest: usize,
}

struct TemplateSlot<M> {
    /// The shape that this slot was last searched for; a text is cached at its second occurrence
    /// only.
    shape: u64,
    cached: Option<Box<CachedAnalysis<M>>>,
}

struct CachedAnalysis<M> {
    template: Template,
    context: TemplateContext,
    analysis: M,
}

impl<M: Clone> Templates<M> {
    /// Returns the analysis of a text: a cached one if the texts differ in plain literals only,
    /// else the result of `read`. The result is cached if `is_fixed` returns that it does not
    /// depend on literals.
    pub fn analysis(
        &mut self,
        text: &[u8],
        context: TemplateContext,
        is_fixed: impl FnOnce(&M) -> bool,
        read: impl FnOnce() -> M,
    ) -> M {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, TemplateSlot::default);
        }
        let mut recent = self.recent.iter();
        let find = |&index: &usize| self.slots.get(index)?.find(text, context);
        if let Some(known) = recent.find_map(find) {
            return known.clone();
        }
        let shape = shape(text);
        let index = (shape >> 57) as usize % SLOTS;
        if let Some(known) = self
            .slots
            .get(index)
            .and_then(|slot| slot.find(text, context))
        {
            let known = known.clone();
            self.remember(index);
            return known;
        }
        let analysis = read();
        let Some(slot) = self.slots.get_mut(index) else {
            return analysis;
        };
        let is_known_shape = std::mem::replace(&mut slot.shape, shape) == shape;
        if is_known_shape && is_fixed(&analysis) {
            let template = Template::of(text, context.dialect);
            slot.cached = template.map(|template| {
                Box::new(CachedAnalysis {
                    template,
                    context,
                    analysis: analysis.clone(),
                })
            });
        }
        analysis
    }

    /// Records that a slot matched, in place of the slot that did so the longest time ago.
    fn remember(&mut self, index: usize) {
        if let Some(oldest) = self.recent.get_mut(self.oldest) {
            *oldest = index;
        }
        self.oldest = self.oldest.wrapping_add(1) % RECENT;
    }
}

impl<M> TemplateSlot<M> {
    fn find(&self, text: &[u8], context: TemplateContext) -> Option<&M> {
        let known = self.cached.as_deref()?;
        let fits = known.context == context && known.template.fits(text);
        fits.then_some(&known.analysis)
    }
}

impl<M> Default for Templates<M> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            recent: [0; RECENT],
            oldest: 0,
        }
    }
}

impl<M> Default for TemplateSlot<M> {
    fn default() -> Self {
        Self {
            shape: 0,
            cached: None,
        }
    }
}

impl<M> fmt::Debug for Templates<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.slots.iter().filter(|slot| slot.cached.is_some());
        write!(f, "{} templates", known.count())
    }
}
