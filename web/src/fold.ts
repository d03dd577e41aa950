// What a session's events come to: turns with their steps, in order. The same events give the same
// value, whether they are replayed or come live; only deltas are nowhere but in the live ones.
import { amounts } from './budget';
import type { Event, Usage } from './types';

export interface Generation { kind: 'generation'; id: string; model: string; text: string; reasoning: string; state: 'open' | 'suspended' | 'done' | 'discarded'; note: string; scripted: boolean; insteadOf: string; cut: boolean }
export interface Call {
  kind: 'call'; id: string; callID: string; tool: string; args: string; workspace: string; state: string; status: string; text: string; diff: string;
  code: string; truncated: boolean; us: number; asked: string; decision: string; note: string; done: number; total: number; unit: string;
}
/** Joined is an input that came while the turn was under way, at the place where the model read it. */
export interface Joined { kind: 'joined'; id: string; said: Said }
export type Step = Generation | Call | Joined;
/** Said is an input, and the worker or shared conversation that it comes from; '' is a person. */
export interface Said { text: string; from: string }
export interface Turn {
  kind: 'turn'; id: string; worker: string; at: string; inputs: Said[]; steps: Step[]; outcome: string; reason: string; usage: Usage | null; text: string;
  rev: number; // grows with each change
}
export interface Note { kind: 'note'; at: string; text: string; rev: number; id: string }
export type Entry = Turn | Note;
export interface Staged { id: string; worker: string; text: string; at: string; from: string }

export class Transcript {
  entries: Entry[] = [];
  staged: Staged[] = [];
  closed = '';
  scripted = false;
  fields = 0; // edits seen so far
  private tasks = new Map<string, string>(); // by worker whose task is not known yet: who gave it one
  private turns = new Map<string, Turn>();
  private calls = new Map<string, [Turn, Call]>();
  private open = new Map<string, Generation>();

  /** take folds one event in. It never fails: what it does not know it leaves. */
  take(e: Event): void {
    switch (e.type) {
      case 'session.created': return this.note(e, `session began${e.agent ? ` with agent ${e.agent}` : ''}${e.model ? `, model ${e.model}` : ''}`);
      case 'session.closed': this.closed = e.reason || 'closed'; return this.note(e, `session closed${e.reason ? `: ${e.reason}` : ''}`);
      case 'worker.spawned': if (e.parent && e.worker) this.tasks.set(e.worker, e.parent); if (e.parent || e.status) this.note(e, `worker ${e.worker ?? ''} ${e.status === 'released' ? 'was released' : `(agent ${e.agent ?? ''}) was given a task`}`); return;
      case 'worker.ended': return this.note(e, `worker ${e.worker ?? ''} ${e.status === 'quarantined' ? 'is quarantined' : 'ended'}${e.reason ? `: ${e.reason}` : ''}`);
      case 'worker.handed_over': return this.note(e, `agent ${e.from ?? ''} handed over to agent ${e.agent ?? ''}${e.reason ? `: ${e.reason}` : ''}`);
      case 'message.sent': return this.note(e, `message to worker ${e.to ?? ''}: ${e.text ?? ''}`);
      case 'message.refused': return this.note(e, `a message was not taken${e.reason ? `: ${e.reason}` : ''}`);
      case 'field.changed': this.fields++; return this.note(e, fieldText(e.details));
      case 'history.compacted': return this.note(e, `older turns were ${e.status ?? 'summarised'}: ${e.done ?? 0} of ${e.total ?? 0} tokens are left`);
      case 'budget.changed': if (e.status === 'changed') this.note(e, `the budget is now ${amounts(e.budget ?? {})}${e.reason ? ` (${e.reason})` : ''}`); return;
      case 'workspace.progress': case 'approval.shown': return; // one of a run's has no turn; the others' turns show who asks by themselves
      case 'input.accepted': this.staged.push({ id: e.input_id ?? '', worker: e.worker ?? '', text: e.text ?? '', at: e.at, from: e.from || this.task(e.worker ?? '') }); return;
      case 'input.withdrawn': this.staged = this.staged.filter((s) => s.id !== e.input_id); return;
    }
    if (e.turn) this.inTurn(e, this.turn(e));
  }

  /** gap says that deltas may have been lost: the whole text comes when the answer is complete. */
  gap(): void {
    for (const g of this.open.values()) if (g.text) g.text += '\u2009[\u2026]\u2009';
  }

  note(e: Event, text: string): void {
    this.entries.push({ kind: 'note', at: e.at, text, rev: 0, id: `note-${e.seq ?? this.entries.length}` });
  }

  /** the open turns, of all workers. */
  running(): Turn[] { return [...this.turns.values()].filter((t) => !t.outcome); }

  /** task is who gave a worker its first input; '' for any other. */
  private task(worker: string): string {
    const from = this.tasks.get(worker) ?? '';
    this.tasks.delete(worker);
    return from;
  }

  private turn(e: Event): Turn {
    const id = e.turn ?? '';
    let t = this.turns.get(id);
    if (!t) {
      t = { kind: 'turn', id, worker: e.worker ?? '', at: e.at, inputs: [], steps: [], outcome: '', reason: '', usage: null, text: '', rev: 0 };
      this.turns.set(id, t);
      this.entries.push(t);
    }
    t.rev++;
    return t;
  }

  private inTurn(e: Event, t: Turn): void {
    switch (e.type) {
      case 'turn.started': case 'input.joined': return this.started(e, t);
      case 'turn.completed':
        t.outcome = e.outcome ?? 'done'; t.reason = e.reason ?? ''; t.usage = e.usage ?? null; t.text = e.text ?? '';
        this.discard(t);
        return;
      case 'generation.started': {
        this.discard(t, e.gen_id); // one is asked for at a time: a stop or a crash cut the one before off, and no event says so
        const g = this.generation(e, t);
        g.model = e.model ?? ''; g.insteadOf = e.instead_of ?? '';
        return;
      }
      case 'generation.suspended': return this.suspend(e, t);
      case 'text.delta': this.generation(e, t).text += e.text ?? ''; return;
      case 'reasoning.delta': this.generation(e, t).reasoning += e.text ?? ''; return;
      case 'generation.discarded': {
        const g = this.generation(e, t);
        g.state = 'discarded'; g.note = e.reason || e.error_code || ''; this.open.delete(g.id);
        return;
      }
      case 'generation.completed': {
        const g = this.generation(e, t);
        g.state = 'done'; g.text = e.text ?? ''; g.model = e.model ?? g.model; g.insteadOf = e.instead_of ?? g.insteadOf; g.scripted = !!e.scripted; g.cut = e.finish_reason === 'cancelled'; this.scripted ||= g.scripted; this.open.delete(g.id);
        return;
      }
      default: return this.inCall(e, t);
    }
  }

  private started(e: Event, t: Turn): void {
    const i = this.staged.findIndex((s) => s.id === e.input_id && (!s.worker || s.worker === t.worker));
    const s = i >= 0 ? this.staged.splice(i, 1)[0] : undefined;
    if (!s) return;
    const said = { text: s.text, from: s.from };
    if (e.type === 'input.joined') t.steps.push({ kind: 'joined', id: s.id, said });
    else t.inputs.push(said);
  }

  /** discard ends the answers of a turn that are under way, but for one. */
  private discard(t: Turn, but = ''): void {
    for (const s of t.steps) {
      if (s.kind !== 'generation' || s.id === but || (s.state !== 'open' && s.state !== 'suspended')) continue;
      s.state = 'discarded';
      this.open.delete(s.id);
    }
  }

  /** suspend is what an orderly stop left of the answer under way, of which deltas may have been missed. */
  private suspend(e: Event, t: Turn): void {
    const g = t.steps.findLast((s): s is Generation => s.kind === 'generation' && s.state === 'open') ?? this.generation(e, t);
    g.state = 'suspended';
    g.text = e.text ?? '';
    this.open.delete(g.id);
  }

  private generation(e: Event, t: Turn): Generation {
    const id = e.gen_id ?? '';
    for (const s of t.steps) if (s.kind === 'generation' && s.id === id) return s;
    const g: Generation = { kind: 'generation', id, model: e.model ?? '', text: '', reasoning: '', state: 'open', note: '', scripted: false, insteadOf: '', cut: false };
    t.steps.push(g);
    this.open.set(id, g);
    return g;
  }

  private inCall(e: Event, t: Turn): void {
    const c = this.call(e, t);
    if (!c) return;
    if (e.state) c.state = e.state;
    if (e.tool) c.tool = e.tool;
    switch (e.type) {
      case 'tool.planned': c.args = e.arguments ?? ''; c.workspace = e.workspace ?? ''; c.callID = e.call_id ?? ''; return;
      case 'approval.requested': c.asked = e.approval_id ?? ''; c.diff ||= e.diff ?? ''; return;
      case 'approval.resolved': c.decision = e.decision ?? ''; c.note = e.reason ?? ''; return;
      case 'tool.progress': c.done = e.done ?? 0; c.total = e.total ?? 0; c.unit = e.unit ?? ''; return;
      case 'tool.resolved': c.decision = e.decision ?? ''; c.note = e.reason ?? ''; return;
      case 'tool.finished':
        c.status = e.status ?? ''; c.text = e.text ?? ''; c.code = e.error_code ?? ''; c.truncated = !!e.truncated; c.us = e.duration_us ?? 0;
        c.diff = e.diff || c.diff;
    }
  }

  private call(e: Event, t: Turn): Call | undefined {
    const id = e.exec_id || e.call_id || '';
    if (!id || !(e.type.startsWith('tool.') || e.type.startsWith('approval.'))) return undefined;
    const known = this.calls.get(id);
    if (known) {
      if (known[0] !== t) known[0].rev++;
      return known[1];
    }
    const c: Call = {
      kind: 'call', id, callID: e.call_id ?? '', tool: e.tool ?? '', args: '', workspace: '', state: '', status: '', text: '', diff: '', code: '',
      truncated: false, us: 0, asked: '', decision: '', note: '', done: 0, total: 0, unit: '',
    };
    t.steps.push(c);
    this.calls.set(id, [t, c]);
    return c;
  }
}

function fieldText(details: unknown): string {
  const d = details as { field?: string; old?: unknown; new?: unknown; by?: string } | undefined;
  if (!d?.field) return 'a field changed';
  return `field ${d.field}: ${JSON.stringify(d.old ?? null)} \u2192 ${JSON.stringify(d.new ?? null)}${d.by ? ` (${d.by})` : ''}`;
}
