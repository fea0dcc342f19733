'use strict'
// A real Minecraft proxy (basic-minecraft-proxy) that routes by its agent's directory.
//
//   agent ──directory, drains, accepting──► Directory ──► choose() ──► setRemoteServer()
//   agent ◄──occupancy, "applied"────────── one sender, one request after another
//
// JavaScript runs one thing at a time, so swapping the directory and routing a player never overlap, and a player is in
// the occupancy (`connecting`) before the first packet to its server leaves.
const { parseArgs } = require('node:util')
const { setTimeout: pause } = require('node:timers/promises')
const minecraft = require('minecraft-protocol')

const { values } = parseArgs({
  options: {
    host: { type: 'string', default: '0.0.0.0' },
    port: { type: 'string', default: '25565' },
    api: { type: 'string', default: 'http://127.0.0.1:8090' },
    slots: { type: 'string', default: process.env.SPAWNERY_PLAYER_LIMIT ?? '100' },
    'fallback-groups': { type: 'string', default: process.env.SPAWNERY_FALLBACK_GROUPS ?? '' }
  }
})
const fallbackGroups = values['fallback-groups'].split(',')
// A server that is loading its world is slow; as long as Velocity waits.
const LOGIN_LIMIT_MS = 30000

// The proxy library does not hand out the connections it makes to servers: remember the newest.
let newest = null
const createClient = minecraft.createClient
minecraft.createClient = (options) => (newest = createClient(options))

const proxy = require('basic-minecraft-proxy').createProxy(
  { host: values.host, port: Number(values.port), version: '1.12.2', 'online-mode': false, 'max-players': Number(values.slots) },
  {},
  { autoConnect: false, autoFallback: false, enablePlugins: false }
)

// players: client id -> { on: server or null, to: server or null, backend: connection or null }
const players = new Map()
let directory = new Map()
let drains = []
let accepting = true

function log (what) {
  process.stderr.write(`proxy: ${what}\n`)
}

function occupancy () {
  const servers = {}
  const at = (name) => (servers[name] ??= { players: 0, connecting: 0 })
  for (const { on, to } of players.values()) {
    if (on) at(on).players += 1
    if (to) at(to).connecting += 1
  }
  return { players: players.size, slots: Number(values.slots), servers }
}

// First group with a candidate wins; in it the server with the fewest players of this proxy, by name when equal.
function choose (groups, excluded) {
  const load = (name) => [...players.values()].filter((p) => p.on === name || p.to === name).length
  for (const group of groups) {
    const names = [...directory].filter(([name, s]) => s.group === group && name !== excluded).map(([name]) => name)
    names.sort((a, b) => load(a) - load(b) || (a < b ? -1 : 1))
    if (names.length > 0) return names[0]
  }
  return null
}

function move (id, server) {
  const player = players.get(id)
  player.to = server
  report()
  proxy.setRemoteServer(id, server)
  const backend = newest
  const limit = setTimeout(() => backend.end('no login'), LOGIN_LIMIT_MS)
  let settled = false
  backend.once('login', () => {
    settled = true
    clearTimeout(limit)
    Object.assign(player, { on: server, to: null, backend })
    report()
  })
  const ended = () => {
    clearTimeout(limit)
    if (!players.has(id)) return
    if (!settled) {
      settled = true
      player.to = null
      // The library took the move for done when it began.
      proxy.clients[id].currentServer = player.on ?? ''
      report()
      if (!player.on) tryAnother(id, server)
    } else if (player.backend === backend) {
      Object.assign(player, { on: null, backend: null })
      report()
      if (!player.to) rescue(id, server)
    }
  }
  backend.once('end', ended)
  backend.once('error', (error) => {
    log(`${server}: ${error.message}`)
    ended()
  })
}

// A player has no server: another one, or goodbye.
function tryAnother (id, than) {
  const server = choose(fallbackGroups, than)
  if (server) return move(id, server)
  proxy.clients[id].end('No server is left for you.')
}

// The server under a player is gone. The player is told, as real proxies do.
function rescue (id, lost) {
  proxy.clients[id].write('chat', { message: JSON.stringify({ text: `rescued from ${lost}` }), position: 1 })
  tryAnother(id, lost)
}

function movePlayersOfDrains () {
  for (const { fromServer, toGroups } of drains) {
    for (const [id, { on, to }] of players) {
      if (on !== fromServer || to) continue
      const server = choose(toGroups, fromServer)
      if (server) move(id, server)
    }
  }
}

function apply (update) {
  directory = new Map(update.servers.map((s) => [s.name, s]))
  drains = update.drains
  accepting = update.accepting
  for (const { name, address } of update.servers) {
    const colon = address.lastIndexOf(':')
    proxy.serverList[name] = { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) }
  }
  toConfirm = update.seq
  report()
  movePlayersOfDrains()
}

proxy.on('login', (client) => {
  const server = accepting ? choose(fallbackGroups, null) : null
  if (!server) return client.end('No server can take you now.')
  players.set(client.id, { on: null, to: null, backend: null })
  client.once('end', () => {
    players.delete(client.id)
    report()
  })
  move(client.id, server)
})
proxy.on('error', (error) => {
  log(error.message)
  if (error.code === 'EADDRINUSE' || error.code === 'EADDRNOTAVAIL') process.exit(1)
})

// One sender, so that an older occupancy never overtakes a newer one; the serial tells the agent when one was held up.
let serial = Date.now() * 1000
let toConfirm = null
let wake = () => {}
let dirty = true

function report () {
  dirty = true
  wake()
}

async function send (method, path, body) {
  const answer = await fetch(values.api + path, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body)
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
}

async function sendReports () {
  for (;;) {
    if (!dirty) await new Promise((resolve) => { wake = resolve })
    dirty = false
    const seq = toConfirm
    const now = { ...occupancy(), serial: ++serial }
    try {
      if (seq === null) await send('PUT', '/v1/occupancy', now)
      else await send('POST', '/v1/applied', { seq, occupancy: now })
      if (toConfirm === seq) toConfirm = null
    } catch (error) {
      log(error.message)
      dirty = true
      await pause(200)
    }
  }
}

async function followDirectory () {
  let seen = 0
  for (;;) {
    try {
      const answer = await fetch(`${values.api}/v1/directory?after=${seen}&timeoutSeconds=20`)
      const update = answer.status === 200 ? await answer.json() : null
      if (update && update.seq !== seen) {
        apply(update)
        seen = update.seq
      }
    } catch (error) {
      // An agent that was restarted counts from the beginning again.
      log(error.message)
      seen = 0
      await pause(200)
    }
  }
}

proxy.once('listening', () => process.stdout.write(JSON.stringify({ event: 'ready' }) + '\n'))
setInterval(movePlayersOfDrains, 500)
sendReports()
followDirectory()
