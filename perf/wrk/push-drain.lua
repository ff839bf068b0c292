-- In turns: 100 messages of 256 bytes in, 100 messages out. The script that runs this has put enough into the queue
-- for a pop that overtakes its push on another connection to find its hundred.
local message = '{"payload":"' .. string.rep("x", 254) .. '"}'
local body = '{"queue":"floor-drain","messages":[' .. string.rep(message .. ",", 99) .. message .. "]}"
local push, pop, turn

init = function()
  push = wrk.format("POST", "/api/v1/ephemeral/push", { ["Content-Type"] = "application/json" }, body)
  pop = wrk.format("GET", "/api/v1/ephemeral/pop?queue=floor-drain&batch=100&autoAck=true")
  turn = 0
end

request = function()
  turn = turn + 1
  return turn % 2 == 1 and push or pop
end
