//! Rewrites commands if only one side supports query attributes.

use crate::mysql::build;
use crate::mysql::flags::Capabilities;
use crate::mysql::frontend::{Code, Execute, parameters};

/// Writes a COM_QUERY for a server, without the attributes if the server does not accept them.
pub fn query(out: &mut Vec<u8>, attributes: &[u8], text: &[u8], server: Capabilities) {
    match server.has(Capabilities::QUERY_ATTRIBUTES) {
        true => build::query_with_attributes(out, attributes, text),
        false => build::query(out, text),
    }
}

/// Writes a client's COM_STMT_EXECUTE for a server with a different agreement on query attributes.
/// `prepared` is the number of the statement's parameters. Returns `None` if the packet is
/// malformed, or has attributes after values whose types were sent with an earlier execution.
#[must_use]
pub fn execute(
    out: &mut Vec<u8>,
    execute: &Execute<'_>,
    prepared: u16,
    client: Capabilities,
    server: Capabilities,
) -> Option<()> {
    let given = parameters(execute, prepared, client)?;
    let prepared = usize::from(prepared);
    let named = server.has(Capabilities::QUERY_ATTRIBUTES);
    // Without types, values can be separated only if all of them belong to the statement.
    let values = match given.count {
        count if count < prepared => return None,
        count if count == prepared => given.values,
        _ => given.values_of_first(prepared)?,
    };
    build::packet(out, 0, |out| {
        out.push(Code::StmtExecute as u8);
        build::put_u32(out, execute.statement.0);
        out.push(execute.flags & !Execute::COUNT_AVAILABLE);
        out.extend_from_slice(given.iterations);
        if prepared == 0 {
            return;
        }
        if named {
            build::put_lenenc(out, prepared as u64);
        }
        let nulls = given.nulls.get(..prepared.div_ceil(8));
        out.extend_from_slice(nulls.unwrap_or(given.nulls));
        out.push(u8::from(given.types.is_some()));
        for (kind, _) in given.typed().take(prepared) {
            build::put_u16(out, kind);
            if named {
                build::put_lenenc_bytes(out, b"");
            }
        }
        out.extend_from_slice(values);
    });
    Some(())
}
