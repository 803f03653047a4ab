/** Tasks that depend on each other, run in an order in which each comes after those that it needs. */

export type TaskState = "waiting" | "running" | "done" | "failed";

export interface Task<T> {
  readonly name: string;
  readonly needs: readonly string[];
  run(results: ReadonlyMap<string, T>): Promise<T>;
}

export interface ScheduleOptions {
  readonly maxRunning?: number;
  readonly onChange?: (name: string, state: TaskState) => void;
}

export class CycleError extends Error {
  constructor(readonly path: readonly string[]) {
    super(`tasks need each other: ${path.join(" > ")}`);
  }
}

/** Returns the names in order, or throws a CycleError. */
export function sortTasks<T>(tasks: ReadonlyMap<string, Task<T>>): string[] {
  const order: string[] = [];
  const visited = new Set<string>();
  const visit = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) {
      throw new CycleError([...path, name]);
    }
    if (visited.has(name)) {
      return;
    }
    const task = tasks.get(name);
    if (task === undefined) {
      throw new Error(`there is no task called ${name}`);
    }
    for (const needed of task.needs) {
      visit(needed, [...path, name]);
    }
    visited.add(name);
    order.push(name);
  };
  for (const name of tasks.keys()) {
    visit(name, []);
  }
  return order;
}

export class Schedule<T> {
  private readonly tasks = new Map<string, Task<T>>();
  private readonly states = new Map<string, TaskState>();
  private readonly results = new Map<string, T>();

  constructor(private readonly options: ScheduleOptions = {}) {}

  add(task: Task<T>): this {
    if (this.tasks.has(task.name)) {
      throw new Error(`there are two tasks called ${task.name}`);
    }
    this.tasks.set(task.name, task);
    this.change(task.name, "waiting");
    return this;
  }

  async run(): Promise<ReadonlyMap<string, T>> {
    const waiting = new Set(sortTasks(this.tasks));
    const running = new Map<string, Promise<void>>();
    while (waiting.size > 0 || running.size > 0) {
      for (const name of waiting) {
        if (running.size >= (this.options.maxRunning ?? Infinity)) {
          break;
        }
        const task = this.tasks.get(name);
        if (task !== undefined && task.needs.every((needed) => this.results.has(needed))) {
          waiting.delete(name);
          running.set(name, this.start(task).finally(() => running.delete(name)));
        }
      }
      await Promise.race(running.values());
    }
    return this.results;
  }

  private async start(task: Task<T>): Promise<void> {
    this.change(task.name, "running");
    try {
      this.results.set(task.name, await task.run(this.results));
      this.change(task.name, "done");
    } catch (error) {
      this.change(task.name, "failed");
      throw error;
    }
  }

  private change(name: string, state: TaskState): void {
    this.states.set(name, state);
    this.options.onChange?.(name, state);
  }
}
