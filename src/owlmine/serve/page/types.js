/**
 * What the service sends and takes.
 *
 * @typedef {"text" | "sparse vectors" | "dense vectors"} Takes
 * @typedef {{indices: number[], values: number[]}} SparseVector
 * @typedef {string | number[] | SparseVector} Query
 *
 * @typedef {{name: string, ready: boolean, problem: string | null}} ModelEntry
 *
 * @typedef {object} ModelInfo
 * @property {string} name
 * @property {Takes} takes
 * @property {string} version
 * @property {number} classes
 * @property {number} features
 * @property {number} points
 * @property {string} data
 * @property {Record<string, number>} figures
 * @property {boolean} probabilities
 * @property {{precision: number, threshold: number, kept: number}[]} thresholds
 * @property {{name: string, title: string, weight: number}[]} judges
 * @property {Record<string, unknown> | null} index
 * @property {string} card
 * @property {string[]} pictures
 * @property {Query[]} examples
 *
 * @typedef {object} PredictRequest
 * @property {Query[]} queries
 * @property {number} k
 * @property {number} [threshold]
 * @property {number} [tail]
 * @property {boolean} [reasons]
 *
 * @typedef {object} Answer
 * @property {string} key
 * @property {string} name
 * @property {number} score
 * @property {number | null} probability
 * @property {number} examples
 * @property {Reasons} [reasons]
 *
 * @typedef {{known: boolean, classes: Answer[]}} Prediction
 *
 * @typedef {{name: string, title: string, score: number}} Part
 * @typedef {{judge: string, row: number, id: string | null, text: string | null, cosine: number, share: number}} Voter
 *
 * @typedef {object} WordEffects  what a word, or a feature of a vector, adds to the score; null: not measured
 * @property {string} [word]
 * @property {number} [feature]
 * @property {[number, number][]} [spans]  in characters of Unicode
 * @property {number | null} [dense]
 * @property {number | null} [linear]
 * @property {number | null} [name]
 *
 * @typedef {object} Reasons
 * @property {number} score
 * @property {Part[]} parts
 * @property {WordEffects[]} words
 * @property {WordEffects[]} features
 * @property {Voter[]} voters
 * @property {string[]} spelled_by  words of the query that spell the name
 * @property {string[]} suggested_by  judges that brought the class into the list
 *
 * @typedef {{key: string, name: string, cosine: number, examples: number}} SimilarClass
 * @typedef {{key: string, name: string, examples: number, similar: SimilarClass[]}} ClassInfo
 */

export {};
