//! Counts the transactions in a set of MySQL GTIDs.

/// Returns the number of transactions; a set is written `uuid:1-5:7,uuid:tag:1-3`.
pub(crate) fn count(set: &str) -> u64 {
    set.split([',', ':'])
        .filter_map(|part| interval(part.trim()))
        .sum()
}

/// Returns the length of an interval; `None` for a server's id (it has more dashes) and for a tag
/// (it begins with a letter).
fn interval(text: &str) -> Option<u64> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
    Some((last + 1).saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_all_servers_and_tags_are_counted() {
        let one = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let two = "11111111-1111-1111-1111-111111111111";
        assert_eq!(count(""), 0);
        assert_eq!(count(&format!("{one}:1")), 1);
        assert_eq!(count(&format!("{one}:1-5:7,\n{two}:3-4")), 8);
        assert_eq!(count(&format!("{two}:1-2:backup:1-10")), 12);
    }
}
