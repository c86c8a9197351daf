//! Escapes text in HTML, so that input from outside cannot become markup.

/// A piece of a page. Only literals of this program and drawn figures are inserted as they are; all
/// other text goes through [`Html::text`].
#[derive(Default)]
pub(super) struct Html(String);

/// A figure drawn by the charting library, which escapes its own texts.
pub(super) struct Svg(pub(super) String);

impl Html {
    /// Appends literal markup of this program.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Appends any text, escaped.
    pub(super) fn text(&mut self, text: &str) -> &mut Html {
        for character in text.chars() {
            match character {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Control characters, such as terminal colors, cannot be represented in XML.
                control if control.is_control() && !matches!(control, '\n' | '\t') => {
                    self.0.push('\u{fffd}');
                }
                other => self.0.push(other),
            }
        }
        self
    }

    /// Appends an element; `opening` is its name with its attributes.
    pub(super) fn inside(
        &mut self,
        opening: &'static str,
        fill: impl FnOnce(&mut Html),
    ) -> &mut Html {
        self.raw("<").raw(opening).raw(">");
        fill(self);
        let name = opening.split(' ').next().unwrap_or_default();
        self.raw("</").raw(name).raw(">\n")
    }

    /// Appends an element that contains only text.
    pub(super) fn element(&mut self, opening: &'static str, text: &str) -> &mut Html {
        self.inside(opening, |html| {
            html.text(text);
        })
    }

    /// Appends an element with one more attribute, whose value comes from outside.
    pub(super) fn with(
        &mut self,
        opening: &'static str,
        (attribute, value): (&'static str, &str),
        fill: impl FnOnce(&mut Html),
    ) -> &mut Html {
        self.raw("<")
            .raw(opening)
            .raw(" ")
            .raw(attribute)
            .raw("=\"");
        self.text(value).raw("\">");
        fill(self);
        let name = opening.split(' ').next().unwrap_or_default();
        self.raw("</").raw(name).raw(">\n")
    }

    /// Appends style rules that this program has generated; they contain nothing from outside.
    pub(super) fn style(&mut self, rules: &str) -> &mut Html {
        debug_assert!(!rules.contains('<'), "rules cannot end their element");
        self.0.push_str(rules);
        self
    }

    pub(super) fn svg(&mut self, svg: &Svg) -> &mut Html {
        self.0.push_str(&svg.0);
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut html = Html::default();
        html.element(
            "p class=\"a\"",
            "<script>alert('1' & \"2\")</script>\u{1b}[31m\n",
        );
        assert_eq!(
            html.finish(),
            "<p class=\"a\">&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;\
             \u{fffd}[31m\n</p>\n"
        );
    }

    #[test]
    fn a_value_cannot_leave_its_attribute() {
        let mut html = Html::default();
        html.with("a", ("href", "\" onclick=\"x"), |html| {
            html.text("b");
        });
        assert_eq!(html.finish(), "<a href=\"&quot; onclick=&quot;x\">b</a>\n");
    }
}
