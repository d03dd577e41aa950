// The JSON of the HTTP API, as far as the console reads it.

export interface Problem { status: number; code: string; detail: string; hint?: string; resume_after?: number }

export interface Usage { input_tokens: number; output_tokens: number; cached_tokens?: number; cost_usd: number }

/** Worker states, exactly these words on every surface. */
export const workerStates = ['inactive', 'working', 'requesting', 'receiving', 'waiting', 'using_tool', 'inactive_failed'] as const;

export interface Worker {
  id: string; state: string; session: string; agent?: string; model?: string; turns: number; staged: number; restarts: number;
  last_outcome?: string; turn?: string; waits_for?: string; quarantined?: boolean; approvals?: number; in_doubt?: number;
  last_error?: string; usage: Usage; parent?: string; updated_at?: string; background?: boolean; waiting?: { instead_of?: string };
}

/** Amounts of what is bounded; what is not there is not bounded, or nothing. */
export interface Amounts { usd?: number; tokens?: number; tool_calls?: number; wall_ms?: number }
export interface Budget { limits: Amounts; spent: Amounts; reserved: Amounts; on_exceed: string; waiting?: number }

export interface FileChange { path: string; state: string; diff?: string; conflict?: string; merged?: boolean }
export interface Changes { folder: string; copy: string; files: FileChange[] }

export interface Workspace {
  id?: string; name: string; uri: string; kind: string; mode: string; trust: string; primary: boolean; state?: string; owner?: string;
  project_dir?: string; worker?: string; // of a copy: the folder that it was made of, and whose it is when it is a worker's
}

export interface Session {
  id: string; state: string; created_at?: string; updated_at?: string; folder?: string; agent?: string; model?: string; title?: string;
  turns: number; usage: Usage; workspaces?: Workspace[]; workers?: Worker[]; budget?: Budget;
}

/** Talk is a conversation that workers share; in a turn of it somebody said something, or was cut off. */
export interface Talk { id: string; name: string; revision: number; count: number; waiting?: number; speaking?: string; next?: number; members?: { worker: string; name: string; turns: number; left?: string }[]; turns?: TalkTurn[] }
export interface TalkTurn {
  seq: number; number: number; at: string; member?: string; said?: { text: string; turn?: string; by?: string }; cut?: { turn?: string; outcome?: string; code?: string; reason?: string };
}

export interface Run {
  id: string; state: string; name: string; session: string; started_at: string; steps: number; steps_done: number; items: number; items_done: number;
  error?: string; usage: Usage; scripted?: boolean; step_list?: RunStep[];
}
export interface RunStep {
  step: string; kind: string; state: string; error?: string; needs?: string[]; total: number; done: number; failed: number; per_second?: number; left_ms?: number; items?: RunItem[]; waits?: number; waiting?: RunWait;
}
export interface RunItem { key: string; index: number; state: string; attempt?: number; worker?: string; error?: string; approval?: string; waiting?: RunWait }
/** What an item of a run waits for, and what one may type. */
export interface RunWait { kind: string; text: string; command?: string; approval?: string; since?: string }

export interface Approval {
  id: string; state: string; session: string; worker: string; turn: string; agent?: string; exec_id: string; call_id?: string; tool: string;
  workspace?: string; arguments: string; kind: string; preview: string; reason?: string; args_hash: string; at: string; expires_at?: string;
  rules?: string[]; unremembered?: string; parent?: string; shown?: { by: string; since: string }[];
}

export interface Field {
  name: string; editable: boolean; derived?: boolean; required?: boolean; value: unknown; set: boolean; description?: string; takes?: Schema;
}
export interface Fields { workspace: string; rev: number; schema?: unknown; fields: Field[] }
export interface Schema { type?: string | string[]; enum?: unknown[]; default?: unknown; minimum?: number; maximum?: number; maxLength?: number }

export interface FileEntry { id: string; state: string; size: number; modified_at?: string }

export interface Staged { id: string; state: string; text: string }

export interface Call { id: string; name: string; arguments: string }

export interface Event {
  seq?: number; type: string; at: string; session?: string; worker?: string; turn?: string; text?: string; input_id?: string; gen_id?: string;
  agent?: string; parent?: string; model?: string; tool_calls?: Call[]; finish_reason?: string; usage?: Usage; call_id?: string; exec_id?: string;
  tool?: string; arguments?: string; status?: string; error_code?: string; truncated?: boolean; outcome?: string; reason?: string;
  approval_id?: string; decision?: string; workspace?: string; duration_us?: number; scripted?: boolean; diff?: string; details?: unknown;
  effect?: string; done?: number; total?: number; unit?: string; state?: string; by?: string; budget?: Amounts; from?: string; to?: string; instead_of?: string;
}
