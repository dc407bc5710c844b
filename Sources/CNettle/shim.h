#pragma once

#include <nettle/aes.h>
#include <nettle/gcm.h>
#include <nettle/memops.h>
