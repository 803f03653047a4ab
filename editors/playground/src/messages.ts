/** What the playground sends about healing: midtoken/playground.py. Its texts are in printable form. */

export interface Cell {
  readonly shown: string;
  readonly width: number; // columns
}

export interface SpelledPath {
  readonly token_cells: readonly number[];
  readonly num_shared: number;
  readonly share: number;
  readonly best_share: number;
  readonly next_token: string;
  readonly is_chosen: boolean;
}

export interface Times {
  readonly queue_ms: number;
  readonly prompt_ms: number;
  readonly model_ms: number;
  readonly choice_ms: number;
  readonly total_ms: number;
  readonly num_context_tokens: number;
  readonly num_cached_tokens: number;
  readonly num_forwards: number;
}

export interface HealingPicture {
  readonly kind: "healing";
  readonly number: number;
  readonly kept_tokens: readonly string[];
  readonly healed_tokens: readonly string[];
  readonly num_healed_bytes: number;
  readonly cells: readonly Cell[];
  readonly paths: readonly SpelledPath[];
  readonly typed: string;
  readonly times: Times;
}

export interface Piece {
  readonly shown: string;
  readonly probability: number; // it is shown up to this confidence
}

export interface StrategyPicture {
  readonly kind: "strategy";
  readonly number: number;
  readonly healing: string;
  readonly completion: string;
  readonly pieces: readonly Piece[];
  readonly is_cut: boolean;
  readonly num_forwards: number;
  readonly took_ms: number;
}

export interface Failure {
  readonly kind: "failure";
  readonly number: number;
  readonly text: string;
}

export type Message = HealingPicture | StrategyPicture | Failure;
