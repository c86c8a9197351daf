//! Adapts the analysis of a prepared text to its execution, which may be much later.

use super::{EffectKind, SessionObject, TextAnalysis, Value};
use crate::session_state::mysql::values;

impl TextAnalysis {
    /// Returns the analysis of a text prepared by COM_STMT_PREPARE. The statement names tables of
    /// the schema at its preparation. `mode`, `client` and `collation` are the `sql_mode`,
    /// `character_set_client` and `collation_connection` of its strings.
    #[must_use]
    pub fn of_prepared(mut self, mode: &[u8], client: &[u8], collation: &[u8]) -> TextAnalysis {
        let is_drop =
            |kind: &EffectKind| matches!(kind, EffectKind::Drop(SessionObject::TemporaryTable, _));
        self.effects.retain(|one| !is_drop(&one.kind));
        for effect in &mut self.effects {
            if let EffectKind::Create(SessionObject::TemporaryTable, _) = effect.kind {
                effect.kind = EffectKind::CreateUnknown(SessionObject::TemporaryTable);
            }
            if let EffectKind::SetUser { name, value } = &mut effect.kind
                && let Value::String(string) = value
            {
                match values::literal_of_variable(string, mode, client, collation) {
                    Some(literal) => *value = Value::Same(literal.into()),
                    None => effect.kind = EffectKind::ComputeUser([name.clone()].into()),
                }
            }
        }
        self
    }
}
