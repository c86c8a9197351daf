//! Built-in functions that are volatile and yet may run on any server, and words that look like
//! functions.

use evenkeel_policy::route::Volatility;

/// They change nothing, here or elsewhere, and what they tell is as good on a replica: chance and
/// time, waiting, sizes of relations, what belongs to a partition.
const FUNCTIONS: &[&str] = &[
    "array_sample",
    "array_shuffle",
    "bernoulli",
    "clock_timestamp",
    "current_query",
    "gen_random_uuid",
    "pg_database_size",
    "pg_indexes_size",
    "pg_partition_ancestors",
    "pg_partition_tree",
    "pg_relation_size",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "random",
    "random_normal",
    "system",
    "timeofday",
    "uuidv4",
    "uuidv7",
];

/// Words of the grammar that stand before a bracket and are no functions of the catalog.
const SYNTAX: &[&[u8]] = &[
    b"asymmetric",
    b"both",
    b"columns",
    b"cube",
    b"current_time",
    b"current_timestamp",
    b"escape",
    b"explain",
    b"first",
    b"force_not_null",
    b"force_null",
    b"force_quote",
    b"ilike",
    b"json",
    b"json_array",
    b"json_arrayagg",
    b"json_exists",
    b"json_objectagg",
    b"json_query",
    b"json_scalar",
    b"json_serialize",
    b"json_table",
    b"json_value",
    b"leading",
    b"localtime",
    b"localtimestamp",
    b"merge_action",
    b"next",
    b"operator",
    b"passing",
    b"placing",
    b"preceding",
    b"range",
    b"repeatable",
    b"rollup",
    b"rows",
    b"second",
    b"set",
    b"similar",
    b"stdout",
    b"symmetric",
    b"to",
    b"trailing",
    b"varying",
    b"xmlattributes",
    b"xmlnamespaces",
    b"xmltable",
    b"zone",
];

/// Whether a built-in function of that name is.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.binary_search(&name).is_ok()
}

/// What a name means that no function has.
pub(super) fn of_syntax(name: &[u8]) -> Volatility {
    match SYNTAX.binary_search(&name) {
        Ok(_) => Volatility::Stable,
        Err(_) => Volatility::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_as_they_are_searched() {
        assert!(FUNCTIONS.is_sorted() && SYNTAX.is_sorted());
        assert!(is_function("random") && !is_function("pg_terminate_backend"));
    }
}
