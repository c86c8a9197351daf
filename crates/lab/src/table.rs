//! Formats text in columns.

/// Formats columns as wide as their widest cell, separated by two spaces; numbers are
/// right-aligned.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| pad(cell, *width))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn pad(cell: &str, width: usize) -> String {
    let is_number = cell.starts_with(|c: char| c.is_ascii_digit());
    if is_number {
        format!("{cell:>width$}")
    } else {
        format!("{cell:<width$}")
    }
}

/// Builds one row of cells.
#[macro_export]
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_to_the_left_and_numbers_to_the_right() {
        let text = columns(&[row!["name", "qps"], row!["nginx", 7]]);
        assert_eq!(text, "name   qps\nnginx    7\n");
    }
}
