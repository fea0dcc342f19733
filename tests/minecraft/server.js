'use strict'
// One real Minecraft server (flying-squid) that stands for a server pod.
//
// The name it was given is the player list's header, so that a player learns from its own connection where it is.
// On SIGTERM the server says whom it still had and kicks them, as a real one does; nothing here talks to Spawnery: the
// pod's agent counts by server list ping.
const { parseArgs } = require('node:util')
const fs = require('node:fs')
const squid = require('flying-squid')

const { values } = parseArgs({
  options: {
    host: { type: 'string', default: '0.0.0.0' },
    port: { type: 'string', default: '25565' },
    name: { type: 'string', default: process.env.SPAWNERY_SERVER },
    slots: { type: 'string', default: slotsOfPod() }
  }
})

// In a pod the group's settings are a file; outside there is none.
function slotsOfPod () {
  const config = '/etc/spawnery/config.yaml'
  return fs.existsSync(config) ? /^maxPlayers: *(\d+)/m.exec(fs.readFileSync(config, 'utf8'))?.[1] ?? '20' : '20'
}

// flying-squid writes its log below the working folder and does not make the folder in time.
fs.mkdirSync('logs', { recursive: true })

const server = squid.createMCServer({
  motd: values.name,
  host: values.host,
  port: Number(values.port),
  'max-players': Number(values.slots),
  'online-mode': false,
  logging: true,
  noConsoleOutput: true,
  gameMode: 1,
  difficulty: 1,
  generation: { name: 'superflat', options: { worldHeight: 80 } },
  kickTimeout: 10000,
  plugins: {},
  modpe: false,
  'view-distance': 2,
  'player-list-text': { header: { text: values.name }, footer: { text: '' } },
  'everybody-op': false,
  'max-entities': 100,
  version: '1.12.2'
})

// The header that went out before the login is lost when a proxy moves a player here: say it again on arrival.
server.on('newPlayer', (player) => {
  player.once('spawned', () => player.playerlistUpdateText({ text: values.name }, { text: '' }))
})
server.on('ready', () => process.stdout.write(JSON.stringify({ event: 'ready' }) + '\n'))
process.once('SIGTERM', () => {
  process.stdout.write(JSON.stringify({ event: 'terminating', players: server.players.length }) + '\n')
  Promise.resolve(server.quit('Server closed')).finally(() => process.exit(0))
})
server.on('error', (error) => {
  process.stderr.write(`server: ${error.stack}\n`)
  if (error.code === 'EADDRINUSE' || error.code === 'EADDRNOTAVAIL') process.exit(1)
})
