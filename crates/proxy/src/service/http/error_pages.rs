//! Pages that clients see instead of Evenkeel's own texts of errors.

/// Pages by status.
#[derive(Debug, Default)]
pub struct ErrorPages(Vec<ErrorPage>);

/// Content of the answers with some statuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// First status.
    pub first: u16,
    /// Last status.
    pub last: u16,
    /// Value of `Content-Type`.
    pub media_type: &'static str,
    /// Content.
    pub content: String,
}

impl ErrorPages {
    /// Creates the list. A page for one status precedes one for a class of them.
    pub fn new(mut pages: Vec<ErrorPage>) -> Self {
        pages.sort_by_key(|page| page.last.saturating_sub(page.first));
        Self(pages)
    }

    /// Returns the page for a status, if there is one.
    pub(crate) fn of(&self, status: u16) -> Option<&ErrorPage> {
        let mut pages = self.0.iter();
        pages.find(|page| (page.first..=page.last).contains(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_status_precedes_that_of_its_class() {
        let page = |first, last, content: &str| ErrorPage {
            first,
            last,
            media_type: "text/plain",
            content: content.to_owned(),
        };
        let pages = vec![page(500, 599, "class"), page(503, 503, "one")];
        let pages = ErrorPages::new(pages);
        let of = |status| pages.of(status).map(|page| &*page.content);
        assert_eq!(of(503), Some("one"));
        assert_eq!(of(502), Some("class"));
        assert_eq!(of(599), Some("class"));
        assert_eq!(of(404), None);
    }
}
