// Loaded into VS Code's agent host before its own code: stands where the editor's window would be, so that the host takes the
// way that it takes inside the editor. Owns one message port to the host, and one HTTP request to the scripted model per model
// call. The framing is that of VS Code's own processes: a type byte, a length in groups of seven bits, the payload.
'use strict'

const { EventEmitter } = require('node:events')
const http = require('node:http')

const MODEL_URL = process.env.CROSS_AGENT_TEST_MODEL_URL
const CHANNEL = 'agentHostClientByokLm' // "bring your own key": models that the window, and not the vendor, answers for
const TAG = { nothing: 0, text: 1, buffer: 2, wrapped: 3, list: 4, object: 5, number: 6 }
const ASKED = { call: 100, withdraw: 101, listen: 102 }
const TOLD = { ready: 200, answer: 201, event: 204 }

// The helper processes of the host inherit its options, and are none of ours.
if (process.argv.includes('--type=agentHost') && MODEL_URL) beTheWindow()

function beTheWindow() {
  const parent = new EventEmitter()
  Object.assign(parent, { postMessage() {}, start() {}, close() {} })
  Object.defineProperty(process, 'parentPort', { value: parent, configurable: true })
  parent.on('newListener', (name) => {
    if (name === 'message') setImmediate(attach, parent)
  })
}

let attached = false

function attach(parent) {
  if (attached) return
  attached = true
  const port = new EventEmitter()
  const calls = new Map()
  const tell = (head, body) => port.emit('message', { data: new Uint8Array(Buffer.concat([written(head), written(body)])) })
  Object.assign(port, { start() {}, close() {}, postMessage: (frame) => asked(Buffer.from(frame), tell, calls) })
  parent.emit('message', { ports: [port], data: undefined })
  port.emit('message', { data: new Uint8Array(written('test-window')) })
  tell([TOLD.ready], undefined)
}

function asked(frame, tell, calls) {
  const reader = { frame, at: 0 }
  const [kind, id, channel, name] = read(reader)
  const body = read(reader)
  if (kind === ASKED.withdraw) {
    calls.get(id)?.destroy()
  } else if (kind === ASKED.listen) {
    if (channel === CHANNEL && name === 'models') post('/models', {}, (answer) => tell([TOLD.event, id], answer.models ?? []))
  } else if (kind === ASKED.call) {
    if (channel !== CHANNEL) return tell([TOLD.answer, id], undefined)
    calls.set(id, post('/chat', body, (answer) => {
      calls.delete(id)
      tell([TOLD.answer, id], answer)
    }))
  }
}

function post(path, body, then) {
  const failed = (error) => then({ output: [], error: String(error) })
  const request = http.request(MODEL_URL + path, { method: 'POST', agent: false }, (response) => {
    const parts = []
    response.on('data', (part) => parts.push(part))
    response.on('error', failed)
    response.on('end', () => then(JSON.parse(Buffer.concat(parts).toString())))
  })
  request.on('error', failed)
  request.end(JSON.stringify(body ?? {}))
  return request
}

function length(number) {
  const bytes = []
  do {
    bytes.push((number & 0x7f) | (number > 0x7f ? 0x80 : 0))
    number >>>= 7
  } while (number)
  return Buffer.from(bytes)
}

function written(value) {
  if (value === undefined) return Buffer.from([TAG.nothing])
  if (Array.isArray(value)) return Buffer.concat([Buffer.from([TAG.list]), length(value.length), ...value.map(written)])
  if (Number.isInteger(value) && value >= 0 && value < 2 ** 31) return Buffer.concat([Buffer.from([TAG.number]), length(value)])
  const text = typeof value === 'string'
  const payload = Buffer.from(text ? value : JSON.stringify(value))
  return Buffer.concat([Buffer.from([text ? TAG.text : TAG.object]), length(payload.length), payload])
}

function read(reader) {
  const tag = reader.frame[reader.at++]
  if (tag === TAG.nothing) return undefined
  let count = 0
  for (let shift = 0, byte = 0x80; byte & 0x80; shift += 7) {
    byte = reader.frame[reader.at++]
    count |= (byte & 0x7f) << shift
  }
  if (tag === TAG.number) return count
  if (tag === TAG.list) return Array.from({ length: count }, () => read(reader))
  const payload = reader.frame.subarray(reader.at, (reader.at += count))
  if (tag === TAG.text) return payload.toString()
  return tag === TAG.object ? JSON.parse(payload.toString()) : payload
}
