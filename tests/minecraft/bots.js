'use strict'
// Real players (mineflayer), driven by JSON lines.
//
// in:  {"do":"join","name":N,"host":H,"port":P}   {"do":"leave","name":N}
// out: {"event":"on","name":N,"server":S}   each time the player finds itself on a server: its player list's header
//      {"event":"rescued","name":N}         its proxy says in chat that the server went away under it; "on" or "gone" follows
//      {"event":"gone","name":N,"why":W}    its connection ended; whether it had asked is for the reader to know
const readline = require('node:readline')
const mineflayer = require('mineflayer')

const players = new Map()

function say (line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

function text (component) {
  const value = typeof component === 'string' ? JSON.parse(component) : component
  return typeof value === 'string' ? value : (value.text ?? '')
}

// Mineflayer knows the game better than it knows proxies: one of its plugins throws at a packet that comes before the
// login it belongs to. Such a mistake must end neither this player nor, with the process, everybody else.
function shrugOff (name, client) {
  const emit = client.emit
  client.emit = function (...event) {
    try {
      return emit.apply(this, event)
    } catch (error) {
      process.stderr.write(`${name}: ${event[0]}: ${error.stack}\n`)
      return true
    }
  }
}

function join ({ name, host, port }) {
  const bot = mineflayer.createBot({
    host,
    port,
    username: name,
    version: '1.12.2',
    auth: 'offline',
    viewDistance: 'tiny',
    hideErrors: true
  })
  players.set(name, bot)
  shrugOff(name, bot._client)
  let why = 'connection ended'
  let on = null
  bot._client.on('playerlist_header', ({ header }) => {
    const server = text(header)
    if (server === on) return
    on = server
    say({ event: 'on', name, server })
  })
  bot._client.on('chat', ({ message }) => {
    if (text(message).startsWith('rescued from ')) say({ event: 'rescued', name })
  })
  bot.on('kicked', (reason) => { why = `kicked: ${text(reason)}` })
  bot.on('error', (error) => { why = `error: ${error.message}` })
  bot.on('end', () => {
    players.delete(name)
    say({ event: 'gone', name, why })
  })
}

const commands = {
  join,
  leave: ({ name }) => players.get(name)?.quit()
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const command = JSON.parse(line)
  commands[command.do]?.(command)
}).on('close', () => process.exit(0))
say({ event: 'ready' })
