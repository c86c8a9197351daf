//! Names of built-in functions and of other words that precede a parenthesis.
//!
//! A stored function cannot replace one of these unless its schema is written, so they need no
//! lookup. A name that is missing here is looked up on the server.

use super::LexerModes;
use crate::facts::StatementTraits;

/// Returns whether a call of that name calls no user-defined function.
pub(super) fn is_builtin(name: &[u8]) -> bool {
    let mut lower = [0; LENGTH_MAX];
    let Some(place) = lower.get_mut(..name.len()) else {
        return false;
    };
    place.copy_from_slice(name);
    place.make_ascii_lowercase();
    let found = NAMES.binary_search_by(|known| known.as_bytes().cmp(place));
    found.is_ok()
}

/// Returns whether a name called in a query may nevertheless be a stored function. That is so if
/// only the other product or a later version has a built-in function of that name. It is also so if
/// only the grammar of definitions has the word.
pub(super) fn may_be_stored(name: &[u8], modes: LexerModes) -> bool {
    let others: &[&str] = match modes.mariadb {
        true => &OF_MYSQL,
        false => &OF_MARIADB,
    };
    let lacking = |names: &'static [&'static str], since| match modes.mariadb {
        true if modes.version >= since => &[],
        _ => names,
    };
    let later = [
        lacking(&OF_MARIADB_11, 110_700),
        lacking(&OF_MARIADB_12, 120_300),
    ];
    let mut names = others
        .iter()
        .chain(later.into_iter().flatten())
        .chain(&OF_DEFINITIONS);
    names.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Returns the effects of a function.
pub(super) fn traits(name: &[u8]) -> StatementTraits {
    let any = |names: &[&str]| {
        let mut names = names.iter();
        names.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
    };
    if any(&[
        "get_lock",
        "release_lock",
        "release_all_locks",
        "is_free_lock",
        "is_used_lock",
    ]) {
        return StatementTraits::NAMED_LOCK;
    }
    if any(&["found_rows", "row_count"]) {
        return StatementTraits::READS_FOUND_ROWS;
    }
    if any(&["last_insert_id"]) {
        return StatementTraits::READS_INSERT_ID;
    }
    if any(&["nextval", "setval"]) {
        return StatementTraits::NEXT_VALUE;
    }
    if any(&["lastval"]) {
        return StatementTraits::CURRENT_VALUE;
    }
    if any(&["connection_id", "ps_current_thread_id", "ps_thread_id"]) {
        return StatementTraits::CONNECTION_ID;
    }
    if any(&SPECIAL) || PREFIXES.iter().any(|prefix| begins(name, prefix)) {
        return StatementTraits::SPECIAL_FUNCTION;
    }
    StatementTraits::NONE
}

fn begins(name: &[u8], prefix: &str) -> bool {
    let start = name.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// Functions that wait for replication, read the server's disk, or return data of this server or
/// session only.
const SPECIAL: [&str; 9] = [
    "load_file",
    "master_gtid_wait",
    "master_pos_wait",
    "source_pos_wait",
    "wait_for_executed_gtid_set",
    "wsrep_last_seen_gtid",
    "wsrep_last_written_gtid",
    "wsrep_sync_wait_upto_gtid",
    "benchmark",
];

/// Prefixes of functions of components: locks and replication.
const PREFIXES: [&str; 5] = [
    "service_",
    "version_tokens_",
    "group_replication_",
    "asynchronous_connection_failover_",
    "wait_until_sql_thread",
];

/// Words that precede parentheses only in definitions.
const OF_DEFINITIONS: [&str; 5] = ["array", "list", "number", "object", "path"];

/// MySQL's functions; on MariaDB users define some of them themselves.
#[rustfmt::skip]
const OF_MYSQL: [&str; 14] = [
    "any_value", "bin_to_uuid", "format_bytes", "format_pico_time", "gtid_subset",
    "gtid_subtract", "icu_version", "is_uuid", "json_storage_free",
    "json_storage_size", "regexp_like", "roles_graphml", "uuid_to_bin",
    "validate_password_strength",
];

/// MariaDB's functions.
#[rustfmt::skip]
const OF_MARIADB: [&str; 35] = [
    "column_add", "column_check", "column_create", "column_delete", "column_exists", "column_get",
    "column_json", "column_list", "crc32c", "decode", "decode_oracle", "des_decrypt",
    "des_encrypt", "encode", "encrypt", "json_compact", "json_detailed", "json_equals",
    "json_exists", "json_loose", "json_normalize", "json_query", "lengthb", "median",
    "natural_sort_key", "nvl", "nvl2", "password", "percentile_cont", "percentile_disc",
    "sformat", "sys_guid", "to_char", "trim_oracle", "trunc",
];

/// Functions of MariaDB 11.7 and later. Some are older, but not all are in 10.11.
#[rustfmt::skip]
const OF_MARIADB_11: [&str; 12] = [
    "json_array_intersect", "json_key_value", "json_object_filter_keys", "json_object_to_array",
    "kdf", "uuid_v4", "uuid_v7", "vec_distance", "vec_distance_cosine", "vec_distance_euclidean",
    "vec_fromtext", "vec_totext",
];

/// Functions of MariaDB 12.3 and later.
const OF_MARIADB_12: [&str; 1] = ["to_date"];

/// Length of the longest name, in bytes.
const LENGTH_MAX: usize = 32;

/// All names, in alphabetical order.
#[rustfmt::skip]
const NAMES: [&str; 552] = [
    "abs", "acos", "add", "adddate", "addtime", "aes_decrypt", "aes_encrypt", "against", "all",
    "and", "any", "any_value", "array", "as", "ascii", "asin", "atan", "atan2", "avg", "benchmark",
    "between", "bigint", "bin", "bin_to_uuid", "binary", "binlog", "bit", "bit_and", "bit_count",
    "bit_length", "bit_or", "bit_xor", "blob", "both", "by", "call", "case", "cast", "ceil",
    "ceiling", "char", "char_length", "character", "character_length", "charset", "check", "clob",
    "coalesce", "coercibility", "collation", "column_add", "column_check", "column_create",
    "column_delete", "column_exists", "column_get", "column_json", "column_list", "columns",
    "compress", "concat", "concat_ws", "connection_id", "constraint", "conv", "convert",
    "convert_tz", "cos", "cot", "count", "crc32", "crc32c", "cume_dist", "curdate", "current_date",
    "current_role", "current_time", "current_timestamp", "current_user", "curtime", "database",
    "date", "date_add", "date_format", "date_sub", "datediff", "datetime", "day", "dayname",
    "dayofmonth", "dayofweek", "dayofyear", "dec", "decimal", "decode", "decode_oracle", "default",
    "degrees", "dense_rank", "des_decrypt", "des_encrypt", "div", "double", "else", "elt", "encode",
    "encrypt", "end", "enum", "error", "escape", "except", "exists", "exp", "export_set", "extract",
    "extractvalue", "field", "fields", "find_in_set", "first", "first_value", "fixed", "float",
    "floor", "following", "for", "force_index", "format", "format_bytes", "format_pico_time",
    "found_rows", "from_base64", "from_days", "from_unixtime", "fulltext", "generated",
    "geomcollection", "geometry", "geometrycollection", "get_format", "get_lock", "greatest",
    "group_concat", "grouping", "gtid_subset", "gtid_subtract", "hash", "having", "hex", "hour",
    "icu_version", "if", "ifnull", "ignore", "in", "index", "inet6_aton", "inet6_ntoa", "inet_aton",
    "inet_ntoa", "insert", "instr", "int", "integer", "intersect", "interval", "is", "is_free_lock",
    "is_ipv4", "is_ipv4_compat", "is_ipv4_mapped", "is_ipv6", "is_used_lock", "is_uuid", "isnull",
    "join", "json", "json_array", "json_array_append", "json_array_insert", "json_array_intersect",
    "json_arrayagg", "json_compact", "json_contains", "json_contains_path", "json_depth",
    "json_detailed", "json_equals", "json_exists", "json_extract", "json_insert", "json_key_value",
    "json_keys", "json_length", "json_loose", "json_merge", "json_merge_patch",
    "json_merge_preserve", "json_normalize", "json_object", "json_object_filter_keys",
    "json_object_to_array", "json_objectagg", "json_overlaps", "json_pretty", "json_query",
    "json_quote", "json_remove", "json_replace", "json_schema_valid",
    "json_schema_validation_report", "json_search", "json_set", "json_storage_free",
    "json_storage_size", "json_table", "json_type", "json_unquote", "json_valid", "json_value",
    "kdf", "key", "keys", "kill", "lag", "last_day", "last_insert_id", "last_value", "lastval",
    "lateral", "lcase", "lead", "least", "left", "length", "lengthb", "like", "limit", "lines",
    "linestring", "list", "ln", "load_file", "localtime", "localtimestamp", "locate", "log",
    "log10", "log2", "longblob", "longtext", "lower", "lpad", "ltrim", "make_set", "makedate",
    "maketime", "master_gtid_wait", "master_pos_wait", "match", "max", "mbrcontains",
    "mbrcoveredby", "mbrcovers", "mbrdisjoint", "mbrequals", "mbrintersects", "mbroverlaps",
    "mbrtouches", "mbrwithin", "md5", "median", "medium", "mediumint", "microsecond", "mid", "min",
    "minus", "minute", "mod", "month", "monthname", "multilinestring", "multipoint", "multipolygon",
    "name_const", "natural_sort_key", "nchar", "nested", "nextval", "no", "not", "now", "nth_value",
    "ntile", "null", "nullif", "number", "numeric", "nvarchar", "nvl", "nvl2", "object", "oct",
    "octet_length", "of", "on", "only", "or", "ord", "order", "over", "partition", "partitions",
    "password", "path", "percent_rank", "percentile_cont", "percentile_disc", "period_add",
    "period_diff", "pi", "point", "polygon", "position", "pow", "power", "preceding", "precision",
    "primary", "ps_current_thread_id", "ps_thread_id", "quarter", "quote", "radians", "rand",
    "random_bytes", "range", "rank", "raw", "real", "references", "regexp", "regexp_instr",
    "regexp_like", "regexp_replace", "regexp_substr", "release_all_locks", "release_lock", "repeat",
    "replace", "return", "returning", "reverse", "right", "rlike", "roles_graphml", "rollup",
    "round", "row", "row_count", "row_number", "rpad", "rtrim", "schema", "sec_to_time", "second",
    "select", "separator", "session_user", "set", "setval", "sformat", "sha", "sha1", "sha2",
    "sign", "signed", "sin", "sleep", "smallint", "some", "soundex", "sounds", "source_pos_wait",
    "space", "spatial", "sqrt", "st_area", "st_asbinary", "st_asgeojson", "st_astext", "st_aswkb",
    "st_aswkt", "st_boundary", "st_buffer", "st_buffer_strategy", "st_centroid", "st_collect",
    "st_contains", "st_convexhull", "st_crosses", "st_difference", "st_dimension", "st_disjoint",
    "st_distance", "st_distance_sphere", "st_endpoint", "st_envelope", "st_equals",
    "st_exteriorring", "st_geohash", "st_geomcollfromtext", "st_geometryn", "st_geometrytype",
    "st_geomfromgeojson", "st_geomfromtext", "st_geomfromwkb", "st_interiorringn",
    "st_intersection", "st_intersects", "st_isclosed", "st_isempty", "st_issimple", "st_isvalid",
    "st_latfromgeohash", "st_latitude", "st_length", "st_linefromtext", "st_longfromgeohash",
    "st_longitude", "st_makeenvelope", "st_numgeometries", "st_numinteriorring", "st_numpoints",
    "st_overlaps", "st_pointfromgeohash", "st_pointfromtext", "st_pointn", "st_polyfromtext",
    "st_simplify", "st_srid", "st_startpoint", "st_swapxy", "st_symdifference", "st_touches",
    "st_transform", "st_union", "st_validate", "st_within", "st_x", "st_y", "std", "stddev",
    "stddev_pop", "stddev_samp", "storage", "str_to_date", "straight_join", "strcmp", "subdate",
    "subpartition", "substr", "substring", "substring_index", "subtime", "sum", "sys_guid",
    "sysdate", "system_time", "system_user", "table", "tan", "text", "than", "then", "time",
    "time_format", "time_to_sec", "timediff", "timestamp", "timestampadd", "timestampdiff",
    "tinyint", "to", "to_base64", "to_char", "to_date", "to_days", "to_seconds",
    "trim", "trim_oracle", "trunc", "truncate", "ucase", "unbounded", "uncompress",
    "uncompressed_length", "unhex", "unicode", "union", "unique", "unix_timestamp", "unsigned",
    "update", "updatexml", "upper", "user", "using", "utc_date", "utc_time", "utc_timestamp",
    "uuid", "uuid_short", "uuid_to_bin", "uuid_v4", "uuid_v7", "validate_password_strength",
    "value", "values", "var_pop", "var_samp", "varbinary", "varchar", "varchar2", "variance",
    "varying", "vec_distance", "vec_distance_cosine", "vec_distance_euclidean", "vec_fromtext",
    "vec_totext", "vector", "version", "wait_for_executed_gtid_set", "week", "weekday",
    "weekofyear", "weight_string", "when", "where", "while", "window", "with",
    "wsrep_last_seen_gtid", "wsrep_last_written_gtid", "wsrep_sync_wait_upto_gtid", "xor", "year",
    "yearweek", "zerofill",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order_and_none_is_too_long() {
        assert!(NAMES.is_sorted());
        assert!(NAMES.iter().all(|name| name.len() <= LENGTH_MAX));
        assert!(is_builtin(b"COUNT") && is_builtin(b"json_extract") && !is_builtin(b"mine"));
    }
}
