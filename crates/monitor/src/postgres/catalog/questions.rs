//! Defines the catalog queries, which all run within one snapshot.

/// Number of views' rules, or functions' bodies, that one query reads.
pub(super) const AT_ONCE: usize = 200;

/// Maximum length of a body that is examined.
const BODY_LENGTH_MAX: usize = 256 * 1024;

/// The account controls the search path: operators of other users must not run here.
pub(super) const BEGIN: [&str; 3] = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL search_path = pg_catalog",
    "SET LOCAL max_parallel_workers_per_gather = 0",
];

/// Queries a text that is unchanged while everything that the other queries read is unchanged.
pub(super) const FINGERPRINT: &str = "SELECT concat_ws(' ', \
    (SELECT concat(count(*), ' ', sum(hashint8extended(xmin::text::int8, oid::int8))) \
     FROM pg_proc), \
    (SELECT sum(hashtextextended(concat_ws(' ', relname, relnamespace, relkind, \
      relpersistence, relrowsecurity), oid::int8)) FROM pg_class \
     WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relpersistence <> 't'), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_rewrite), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_policy), \
    (SELECT sum(hashint8extended(inhparent::int8, inhrelid::int8)) FROM pg_inherits), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_operator), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_cast), \
    (SELECT count(*) FROM pg_amproc), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_constraint \
     WHERE contypid <> 0 OR contype IN ('c', 'f')), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_type \
     WHERE typinput::oid >= 16384), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_trigger \
     WHERE NOT tgisinternal), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_attrdef), \
    (SELECT sum(hashint8extended(xmin::text::int8, indexrelid::int8)) FROM pg_index \
     WHERE indexprs IS NOT NULL OR indpred IS NOT NULL), \
    (SELECT sum(hashint8extended(xmin::text::int8, oid::int8)) FROM pg_event_trigger))";

/// Queries oid, name and volatility, the functions of an aggregate, and whether a row suffices as
/// argument.
pub(super) const FUNCTIONS: &str = "SELECT f.oid, f.proname, f.provolatile, \
    concat_ws(' ', a.aggtransfn::oid, a.aggfinalfn::oid, a.aggcombinefn::oid, \
     a.aggserialfn::oid, a.aggdeserialfn::oid, a.aggmtransfn::oid, a.aggminvtransfn::oid, \
     a.aggmfinalfn::oid), \
    f.pronargs - f.pronargdefaults <= 1 AND t.typtype IN ('c', 'd', 'p') \
    FROM pg_proc AS f LEFT JOIN pg_aggregate AS a ON a.aggfnoid = f.oid \
    LEFT JOIN pg_type AS t ON t.oid = f.proargtypes[0]";

/// Queries the users' functions with their versions.
pub(super) const BODIES: &str = "SELECT oid, xmin FROM pg_proc WHERE oid >= 16384";

/// Returns the query of functions with the language and the text of their bodies, unless too long.
pub(super) fn bodies(oids: impl Iterator<Item = u32>) -> String {
    let oids: Vec<String> = oids.map(|oid| oid.to_string()).collect();
    format!(
        "SELECT body.oid, body.language, \
         CASE WHEN octet_length(body.text) <= {BODY_LENGTH_MAX} THEN body.text END FROM ( \
         SELECT f.oid, l.lanname AS language, CASE \
          WHEN l.lanname = 'sql' AND f.prosrc = '' \
          THEN substr(pg_get_functiondef(f.oid), length('CREATE ') + 1) \
          ELSE f.prosrc END AS text \
         FROM pg_proc AS f JOIN pg_language AS l ON l.oid = f.prolang \
         WHERE f.oid IN ({})) AS body",
        oids.join(", ")
    )
}

/// Queries the users' functions that statements call without naming them.
pub(super) const IMPLIED: &str = "SELECT DISTINCT one.called FROM ( \
    SELECT oprcode::oid FROM pg_operator \
    UNION ALL SELECT castfunc FROM pg_cast \
    UNION ALL SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend]::oid[]) FROM pg_type \
    UNION ALL SELECT unnest(ARRAY[rngcanonical, rngsubdiff]::oid[]) FROM pg_range \
    UNION ALL SELECT amproc::oid FROM pg_amproc \
    UNION ALL SELECT uses.refobjid FROM pg_constraint AS con JOIN pg_depend AS uses \
     ON uses.classid = 'pg_constraint'::regclass AND uses.objid = con.oid \
     AND uses.refclassid = 'pg_proc'::regclass WHERE con.contypid <> 0 \
    ) AS one (called) WHERE one.called >= 16384";

/// Queries the functions that run whenever an object is defined, altered or dropped.
pub(super) const EVENTS: &str = "SELECT DISTINCT evtfoid::oid FROM pg_event_trigger \
    WHERE evtenabled <> 'D' AND evtevent <> 'login'";

/// Queries oid, name, kind, and whether only the primary has the relation. The server's views of
/// the catalog are treated like tables. Those of its activity describe one server, and a client
/// that reads them means the primary.
pub(super) const RELATIONS: &str = "SELECT c.oid, c.relname, \
    CASE WHEN c.relkind = 'v' AND c.oid < 16384 THEN CASE \
      WHEN n.nspname = 'information_schema' THEN 'r' \
      WHEN c.relname IN ('pg_group', 'pg_indexes', 'pg_matviews', 'pg_policies', \
       'pg_publication_tables', 'pg_roles', 'pg_rules', 'pg_seclabels', 'pg_shadow', 'pg_stats', \
       'pg_stats_ext', 'pg_stats_ext_exprs', 'pg_tables', 'pg_user', 'pg_user_mappings', \
       'pg_views') THEN 'r' \
      ELSE 'S' END \
     ELSE c.relkind::text END, \
    c.relpersistence = 'u' \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't'";

/// Queries the rules of views, with their versions and views. Views of the server itself are known
/// by name.
pub(super) const VIEWS: &str = "SELECT r.oid, r.xmin, r.ev_class \
    FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class \
    WHERE r.ev_type = '1' AND c.relkind = 'v' AND c.oid >= 16384 AND c.relpersistence <> 't'";

/// Queries parent tables with their children and partitions.
pub(super) const CHILDREN: &str = "SELECT i.inhparent, i.inhrelid \
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid \
    WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'";

/// Queries tables with the effects of writing to them: functions of triggers and of all expressions
/// that the server evaluates, and relations that rules change. An identity column has the effect of
/// nextval.
pub(super) const CHANGES: &str = "\
    SELECT t.tgrelid, string_agg(DISTINCT t.tgfoid::oid::text, ' '), NULL FROM pg_trigger AS t \
     WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' GROUP BY t.tgrelid \
    UNION ALL SELECT d.refobjid, 'pg_catalog.nextval(regclass)'::regprocedure::oid::text, NULL \
     FROM pg_class AS s JOIN pg_depend AS d ON d.objid = s.oid \
     AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass \
     AND d.deptype = 'i' WHERE s.relkind = 'S' \
    UNION ALL SELECT one.relation, \
     (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(one.tree, \
      ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\\d+)', 'g') AS found), \
     (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(one.tree, \
      ':relid (\\d+)', 'g') AS found) \
     FROM ( \
      SELECT adrelid, adbin::text FROM pg_attrdef \
      UNION ALL SELECT tgrelid, tgqual::text FROM pg_trigger \
       WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgqual IS NOT NULL \
      UNION ALL SELECT conrelid, conbin::text FROM pg_constraint \
       WHERE contype = 'c' AND conrelid <> 0 \
      UNION ALL SELECT indrelid, concat(indexprs::text, indpred::text) FROM pg_index \
       WHERE indexprs IS NOT NULL OR indpred IS NOT NULL \
      UNION ALL SELECT partrelid, partexprs::text FROM pg_partitioned_table \
       WHERE partexprs IS NOT NULL \
      UNION ALL SELECT p.polrelid, concat(p.polqual::text, p.polwithcheck::text) \
       FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid WHERE c.relrowsecurity \
      UNION ALL SELECT r.ev_class, concat(r.ev_qual::text, r.ev_action::text) \
       FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class \
       WHERE (r.ev_class >= 16384 OR r.ev_class = 'pg_catalog.pg_settings'::regclass) \
       AND (r.ev_type <> '1' OR c.relkind = 'm') \
     ) AS one (relation, tree) \
    UNION ALL SELECT confrelid, NULL, conrelid::text FROM pg_constraint \
     WHERE contype = 'f' AND confrelid <> conrelid \
     AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))";

/// Queries tables with the functions and relations that their row security uses for reads.
pub(super) const POLICIES: &str = "SELECT p.polrelid, \
    (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(p.polqual::text, \
     ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\\d+)', 'g') AS found), \
    (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(p.polqual::text, \
     ':relid (\\d+)', 'g') AS found) \
    FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid \
    WHERE c.relrowsecurity AND p.polcmd IN ('r', '*')";

/// Returns the query of rules with their functions and relations, and whether they lock rows. They
/// are read from the stored parse tree, because `pg_depend` does not list the server's own
/// functions.
pub(super) fn rules(oids: impl Iterator<Item = u32>) -> String {
    let oids: Vec<String> = oids.map(|oid| oid.to_string()).collect();
    format!(
        "SELECT r.oid, \
         (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(r.ev_action::text, \
          ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\\d+)', 'g') AS found), \
         (SELECT string_agg(DISTINCT found[1], ' ') FROM regexp_matches(r.ev_action::text, \
          ':relid (\\d+)', 'g') AS found), \
         r.ev_action::text ~ ':hasForUpdate true' \
         FROM pg_rewrite AS r WHERE r.oid IN ({})",
        oids.join(", ")
    )
}
