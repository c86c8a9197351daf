//! Relations that run what users have made, which may be something else since the catalog was read.

use std::collections::HashSet;

use super::resolve::{FIRST_USER_OID, Relation};

/// By name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UserCode {
    reads: HashSet<Box<[u8]>>,
    writes: HashSet<Box<[u8]>>,
}

impl UserCode {
    /// Views stand on views, and a trigger changes other tables: repeated until nothing is new.
    pub(super) fn of(relations: &[Relation]) -> UserCode {
        let mut reads = HashSet::new();
        let mut writes = HashSet::new();
        loop {
            let known = reads.len().saturating_add(writes.len());
            for one in relations {
                if is_of_users(&one.functions) || any(&one.relations, &reads) {
                    reads.insert(one.oid);
                }
                let changes = &one.changes;
                let is_run = is_of_users(&changes.functions) || any(&changes.relations, &writes);
                if is_run || any(&one.relations, &writes) || reads.contains(&one.oid) {
                    writes.insert(one.oid);
                }
            }
            if known == reads.len().saturating_add(writes.len()) {
                return UserCode {
                    reads: names(relations, &reads),
                    writes: names(relations, &writes),
                };
            }
        }
    }

    /// Whether reading from a relation of that name, or writing to it, runs any of it.
    pub(super) fn is_run(&self, name: &[u8], is_written: bool) -> bool {
        match is_written {
            true => self.writes.contains(name),
            false => self.reads.contains(name),
        }
    }
}

fn is_of_users(functions: &[u32]) -> bool {
    functions.iter().any(|oid| *oid >= FIRST_USER_OID)
}

fn any(oids: &[u32], known: &HashSet<u32>) -> bool {
    oids.iter().any(|oid| known.contains(oid))
}

fn names(relations: &[Relation], known: &HashSet<u32>) -> HashSet<Box<[u8]>> {
    let found = relations.iter().filter(|one| known.contains(&one.oid));
    found.map(|one| one.name.as_bytes().into()).collect()
}
