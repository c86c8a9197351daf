//! Adapts the analysis of a prepared text to its execution, which may be much later.

use evenkeel_policy::pins::Pin;

use super::{EffectKind, SessionObject, TextAnalysis, Value};
use crate::session_state::mysql::values;

impl TextAnalysis {
    /// Returns the analysis of a text prepared by COM_STMT_PREPARE. The statement names tables of
    /// the schema at its preparation. `mode`, `client` and `collation` are the `sql_mode`,
    /// `character_set_client` and `collation_connection` of its strings.
    #[must_use]
    pub fn of_prepared(mut self, mode: &[u8], client: &[u8], collation: &[u8]) -> TextAnalysis {
        let is_drop = |does: &EffectKind| {
            matches!(does, EffectKind::Unmake(SessionObject::TemporaryTable, _))
        };
        self.effects.retain(|one| !is_drop(&one.does));
        for effect in &mut self.effects {
            if let EffectKind::Make(SessionObject::TemporaryTable, _) = effect.does {
                effect.does = EffectKind::Unknown(SessionObject::TemporaryTable);
            }
            if let EffectKind::SetUser { value, .. } = &mut effect.does
                && let Value::String(string) = value
            {
                match values::literal_of_variable(string, mode, client, collation) {
                    Some(literal) => *value = Value::Same(literal.into()),
                    None => effect.does = EffectKind::Pin(Pin::Variables),
                }
            }
        }
        self
    }
}
