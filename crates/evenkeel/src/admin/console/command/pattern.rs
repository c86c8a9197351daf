//! The patterns of LIKE.

/// `%` is anything, `_` any letter; a backslash takes their meaning away. Case does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Anything,
    AnyLetter,
    Letter(char),
}

impl Pattern {
    pub(super) fn of(text: &str) -> Self {
        let text = text.to_lowercase();
        let mut letters = text.chars();
        let mut parts = Vec::new();
        while let Some(letter) = letters.next() {
            parts.push(match letter {
                '%' => Part::Anything,
                '_' => Part::AnyLetter,
                '\\' => Part::Letter(letters.next().unwrap_or('\\')),
                letter => Part::Letter(letter),
            });
        }
        Self(parts)
    }

    /// Goes back to the last `%` only, so that no pattern takes long.
    pub(super) fn fits(&self, text: &str) -> bool {
        let letters: Vec<char> = text.to_lowercase().chars().collect();
        let (mut at, mut part) = (0, 0);
        let mut again = None;
        while let Some(letter) = letters.get(at) {
            match self.0.get(part) {
                Some(Part::Anything) => {
                    part += 1;
                    again = Some((at, part));
                }
                Some(one) if matches!(one, Part::AnyLetter) || *one == Part::Letter(*letter) => {
                    at += 1;
                    part += 1;
                }
                _ => {
                    let Some((from, behind)) = again else {
                        return false;
                    };
                    (at, part) = (from + 1, behind);
                    again = Some((at, part));
                }
            }
        }
        self.0[part..].iter().all(|one| *one == Part::Anything)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_fit_as_in_sql() {
        for (pattern, fits, fails) in [
            ("a%", "Abc", "ba"),
            ("%c", "abcc", "abcd"),
            ("a_c", "abc", "ac"),
            (r"lower\_case%", "lower_case_names", "lowerXcase"),
            ("%b%d%", "abcde", "adcbe"),
            ("", "", "a"),
            ("%", "anything", "\u{0}none"),
        ] {
            assert!(Pattern::of(pattern).fits(fits), "{pattern} {fits}");
            let is_wrong = Pattern::of(pattern).fits(fails);
            assert_eq!(is_wrong, pattern == "%", "{pattern} {fails}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = Pattern::of(&"%a".repeat(4_000));
        assert!(!pattern.fits(&("a".repeat(3_000) + "b")));
    }
}
