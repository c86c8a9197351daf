//! Finds the word that a user may have meant.

/// Returns the most similar of the words, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    words
        .into_iter()
        .map(|candidate| (closeness(&word, candidate), candidate))
        .filter(|(closeness, _)| *closeness >= 0.82)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the similarity of two words, 1 if they are equal. The edit distance detects typing
/// errors, Jaro-Winkler detects shortened words (`leastconn`), and a part of a word (`uring`)
/// matches the whole word.
fn closeness(word: &str, candidate: &str) -> f64 {
    let edits = strsim::damerau_levenshtein(word, candidate);
    let typing_error = edits <= 1 + candidate.len() / 8;
    let jaro = strsim::jaro_winkler(word, candidate);
    let part = word.len() > 3 && candidate.contains(word);
    if part || (typing_error && candidate.len() >= 3) {
        jaro.max(0.9)
    } else {
        jaro
    }
}
