-- For an echo, which gives back what it is sent: the request is a response, of as many bytes as a push of 256.
local head = "HTTP/1.1 201 Created\r\nContent-Length: 285\r\nContent-Type: application/json\r\n\r\n"
local sent = head .. string.rep("x", 285)
local asked = false

request = function()
  -- wrk looks at the first one, before it connects, and wants a request.
  if not asked then
    asked = true
    return wrk.format("GET", "/")
  end
  return sent
end
